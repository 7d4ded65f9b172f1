"""What is known about a row of logits: the library against numpy."""

import numpy as np
import numpy.typing as npt
import pytest

from cutaway.kernels import native, softmax
from cutaway.kernels.softmax import exp_sum, scan_row

SIZES = (1, 7, 15, 16, 17, 49_153)
KINDS = ("ordinary", "ties", "banned", "all banned", "nan", "infinite")


def make_row(kind: str, size: int) -> npt.NDArray[np.float32]:
    row = np.random.default_rng(size).standard_normal(size, dtype=np.float32) * 8
    match kind:
        case "ties":
            row[:] = np.round(row)
        case "banned":
            row[1::2] = -np.inf
        case "all banned":
            row[:] = -np.inf
        case "nan":
            row[size // 2] = np.nan
        case "infinite":
            row[-1] = np.inf
    return row


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_scan_says_what_numpy_says(kind: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    row = make_row(kind, size)
    fast = scan_row(row)
    monkeypatch.setattr(native, "library", lambda: None)
    slow = scan_row(row)
    assert (fast.num_tokens, fast.num_bad) == (slow.num_tokens, slow.num_bad)
    if not fast.num_bad and fast.num_tokens:
        assert fast.best_id == slow.best_id == row.argmax()
        assert fast.exp_sum == pytest.approx(slow.exp_sum, rel=1e-12)


@pytest.mark.parametrize("temperature", [1e-300, 1e-3, 0.7, 1.0, 5.0, 1e4])
@pytest.mark.parametrize("size", SIZES)
def test_a_sum_of_exponentials_is_that_of_numpy(size: int, temperature: float, monkeypatch: pytest.MonkeyPatch) -> None:
    row = make_row("banned", size)
    fast = exp_sum(row, float(row.max()), temperature)
    monkeypatch.setattr(softmax.native, "library", lambda: None)
    assert fast == pytest.approx(exp_sum(row, float(row.max()), temperature), rel=1e-12)
