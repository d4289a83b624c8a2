"""Why pairs are rated as they are, and what rating people would give."""
