"""What choosing a token needs to know about a whole row of logits, before any of them is sorted.

A row is summed up in parts and in an order that depend on its size alone. The library's bits differ from numpy's in the
last place.
"""

import ctypes
from typing import NamedTuple

import numpy as np

from cutaway.kernels import native
from cutaway.kernels.native import Floats, address


class RowScan(NamedTuple):
    """A row of logits.

    Attributes:
        best_id: the largest logit's token, the first of equal ones.
        num_tokens: logits that are not -inf.
        num_bad: logits that are NaN or +inf.
        exp_sum: the sum of e^(logit - largest) in float64; means nothing if there is nothing to choose from.
    """

    best_id: int
    num_tokens: int
    num_bad: int
    exp_sum: float


def scan_row(row: Floats) -> RowScan:
    """Scan a row, float32 [vocab], contiguous."""
    loaded = native.library()
    if loaded is not None:
        found = native.RowScan()
        loaded.cutaway_scan(address(row), row.size, ctypes.byref(found))
        return to_row_scan(found)
    best_id = int(row.argmax())
    top = float(row[best_id])
    num_bad = 0 if top < np.inf else int(np.count_nonzero(~(row < np.inf)))  # the maximum is NaN if any is
    num_tokens = int(np.count_nonzero(row > -np.inf))
    return RowScan(best_id, num_tokens, num_bad, exp_sum(row, top, 1.0) if np.isfinite(top) else 0.0)


def to_row_scan(found: native.RowScan) -> RowScan:
    """What the library found."""
    return RowScan(found.best_id, found.num_tokens, found.num_bad, found.exp_sum)


def exp_sum(row: Floats, top: float, temperature: float) -> float:
    """The sum of e^((logit - top) / temperature) over a row, in float64.

    Args:
        row: float32 [vocab], contiguous, without NaN.
        top: its largest number.
        temperature: above 0.
    """
    loaded = native.library()
    if loaded is not None:
        total: float = loaded.cutaway_exp_sum(address(row), row.size, top, temperature)
        return total
    exponents = row.astype(np.float64)
    exponents -= top
    with np.errstate(over="ignore"):
        exponents /= temperature
    return float(np.exp(exponents, out=exponents).sum())
