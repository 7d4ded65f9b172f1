"""What a forward pass is given, whoever computes it: rows of several requests one after another, no padding.

Plain arrays, so that neither those who plan a step nor the native kernels need torch.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RowSpan:
    """The rows of one request in a flat batch.

    Attributes:
        first_row: index of its first row.
        num_rows: number of its rows, which are consecutive positions.
        start: position of the first row.
        slots: [start + num_rows] int64, where each position of the request lies in the cache; those that no row sees
            may lie anywhere where there are finite numbers.
    """

    first_row: int
    num_rows: int
    start: int
    slots: Ints


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """All rows of a step.

    Attributes:
        token_ids: [rows] int64.
        positions: [rows] int64, the position of each row in its request.
        groups: for each entry of ``ModelConfig.windows``, which rows belong to whom and where they lie; the spans of a
            group cover all rows in order.
    """

    token_ids: Ints
    positions: Ints
    groups: tuple[tuple[RowSpan, ...], ...]


@dataclass(frozen=True, slots=True)
class LayerStore:
    """Keys and values of one layer, for every slot.

    A slot is an index into both arrays, which overlap: what is between the slots of two blocks is other layers'. A
    model may order the keys and values of a block as it likes, which lie in one piece. The numbers are bits that it may
    read as whatever it keeps: uint16 for bfloat16, uint32 for float32.

    Attributes:
        key, value: [rows, kv_heads, head_dim]; a slot is a row.
        block_size: positions in a block; the values of one follow its keys.
    """

    key: np.ndarray[Any, Any]
    value: np.ndarray[Any, Any]
    block_size: int
