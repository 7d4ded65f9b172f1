"""Arithmetic. ``reference`` is readable torch; ``native`` is compiled, a forward pass at once, and tested on it."""

REFERENCE_KERNELS = "reference (torch)"
