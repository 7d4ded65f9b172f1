"""The flat batch that a forward pass computes: rows of several requests one after another, no padding."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class RowSpan:
    """The rows of one request in a flat batch.

    Attributes:
        first_row: index of its first row.
        num_rows: number of its rows, which are consecutive positions.
        start: position of the first row.
        slots: [start + num_rows] int64, where each position of the request lies in the cache.
    """

    first_row: int
    num_rows: int
    start: int
    slots: Tensor


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """All rows of a step.

    Attributes:
        token_ids: [rows] int64.
        positions: [rows] int64, the position of each row in its request.
        slots: [rows] int64, where each row's key and value go.
        spans: which rows belong to whom; together they cover all rows.
    """

    token_ids: Tensor
    positions: Tensor
    slots: Tensor
    spans: tuple[RowSpan, ...]


@dataclass(frozen=True, slots=True)
class LayerCache:
    """Keys and values of one layer, for every slot: [num_slots, kv_heads, head_dim] each."""

    key: Tensor
    value: Tensor
