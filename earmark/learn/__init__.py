"""How it is learned: losses, objectives, batches, the loop."""
