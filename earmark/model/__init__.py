"""What is learned: the two encoders and their shared space."""
