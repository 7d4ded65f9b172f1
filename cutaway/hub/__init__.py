"""Which models there are, where they lie, and how they get there."""
