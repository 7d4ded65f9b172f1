"""Arithmetic on tensors. ``reference`` is readable torch; faster kernels share its signatures and are tested on it."""

REFERENCE_KERNELS = "reference (torch)"
