"""Logits to token: random numbers, penalties, and the sampler with the facts of its choice."""
