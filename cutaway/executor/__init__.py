"""Runs step plans: plans become flat tensors, tensors become chosen tokens."""
