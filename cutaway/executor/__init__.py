"""Runs step plans: plans become flat batches, batches become chosen tokens."""
