"""The falling order against Python's own sort, ties and growth included."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cutaway.sampling.order import FallingOrder

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False) | st.sampled_from([-np.inf, 0.0, -0.0, 1.0, 2.0])
ROWS = arrays(np.float32, st.integers(1, 40), elements=FLOATS).filter(lambda row: bool(np.isfinite(row).any()))


def slow_order(logits: np.ndarray) -> list[int]:
    return sorted(range(logits.size), key=lambda token_id: (-float(logits[token_id]), token_id))


def tied_row(num_tokens: int, num_values: int) -> np.ndarray:
    """Few distinct values, both zeros among them, so that every cut falls into a tie."""
    values = np.random.default_rng(num_tokens).integers(-num_values, num_values, num_tokens) / 2
    row = values.astype(np.float32)
    row[::3] *= -1  # makes some zeros negative
    return row


@given(ROWS)
def test_the_order_falls_and_equal_logits_go_by_id(row):
    order = FallingOrder(row)
    expected = slow_order(row)
    assert order.prefix(row.size).tolist() == expected
    assert order.best_id == expected[0]
    assert [order.rank(token_id) for token_id in expected] == list(range(1, row.size + 1))
    assert order.num_tokens == sum(value > -np.inf for value in row.tolist())


@pytest.mark.parametrize("num_values", [1, 2, 1_000])
@pytest.mark.parametrize("counts", [(10_000,), (1, 256, 257, 4_096, 4_097, 10_000), (5, 300), (4_097,)])
def test_a_prefix_is_the_same_however_it_grew(num_values, counts):
    row = tied_row(10_000, num_values)
    order = FallingOrder(row)
    expected = slow_order(row)
    for count in counts:
        prefix = order.prefix(count).tolist()
        assert len(prefix) >= count
        assert prefix == expected[: len(prefix)]


def test_extreme_values_keep_their_place():
    tiny, huge = np.finfo(np.float32).smallest_subnormal, np.finfo(np.float32).max
    row = np.array([0.0, -tiny, huge, -np.inf, tiny, -huge, -0.0], dtype=np.float32)
    assert FallingOrder(row).prefix(7).tolist() == [2, 4, 0, 6, 1, 5, 3]
