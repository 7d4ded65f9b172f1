"""What keeps the repository in order; nothing here is part of the package."""
