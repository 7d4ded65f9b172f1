"""The flat batch that a forward pass computes: rows of several requests one after another, no padding."""

from dataclasses import dataclass

from torch import Tensor

from cutaway.kernels.reference import AttentionSpan, RowSpan


@dataclass(frozen=True, slots=True)
class GroupBatch:
    """Where the rows of a step lie, for the layers that see equally far back.

    Attributes:
        slots: [rows] int64, where each row's key and value go.
        spans: which rows belong to whom; together they cover all rows.
    """

    slots: Tensor
    spans: tuple[RowSpan, ...]


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """All rows of a step.

    Attributes:
        token_ids: [rows] int64.
        positions: [rows] int64, the position of each row in its request.
        groups: one for each entry of ``ModelConfig.windows``.
    """

    token_ids: Tensor
    positions: Tensor
    groups: tuple[GroupBatch, ...]


@dataclass(frozen=True, slots=True)
class LayerCache:
    """Keys and values of one layer, for every slot: [num_slots, kv_heads, head_dim] each."""

    key: Tensor
    value: Tensor


@dataclass(frozen=True, slots=True)
class LayerContext:
    """What all layers of one kind share in a step.

    Attributes:
        slots: [rows] int64, where each row's key and value go.
        cos, sin: the angles of the rows' positions, as ``kernels.rotate`` takes them.
        spans: what each row sees, as ``kernels.attend`` takes it.
    """

    slots: Tensor
    cos: Tensor
    sin: Tensor
    spans: tuple[AttentionSpan, ...]
