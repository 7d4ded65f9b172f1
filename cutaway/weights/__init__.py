"""Model files: what is in them, and their tensors in one convention."""
