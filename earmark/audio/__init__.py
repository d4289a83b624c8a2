"""Sound in: decoding and log-mels."""
