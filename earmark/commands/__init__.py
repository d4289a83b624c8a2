"""The commands: what they take, and how they tell what came of it."""
