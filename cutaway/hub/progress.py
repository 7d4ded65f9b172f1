"""How a download tells how far it has come."""

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Told ``(num_done_bytes, num_total_bytes)`` of what travels, now and then, beginning with 0."""


def no_progress(num_done: int, num_total: int) -> None:
    """Progress for callers that do not want to see it."""
