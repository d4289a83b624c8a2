"""Search: people's own sounds, by words and by sounds."""
