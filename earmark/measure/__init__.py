"""Scores × relevance → numbers; numpy and scipy only."""
