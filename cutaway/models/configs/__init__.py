"""What checkpoints of each architecture say about it, one file an architecture."""
