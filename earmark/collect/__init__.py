"""Asks people: what to ask, the study they answer in, what becomes of their answers."""
