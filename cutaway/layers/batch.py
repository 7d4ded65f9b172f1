"""What the layers of a model are given in a step."""

from dataclasses import dataclass

from torch import Tensor

from cutaway.kernels.reference import AttentionSpan


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
