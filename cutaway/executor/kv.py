"""The cache's memory: keys and values of every layer, addressed by slot.

A slot is ``block * block_size + offset``. Memory is reserved at once and touched only when it is written, so an
unused part of the cache costs address space, not RAM; until then it reads as zeros.
"""

from dataclasses import dataclass

import torch

from cutaway.layers.batch import LayerCache


@dataclass(frozen=True, slots=True)
class KVShape:
    """Size of the cache of one model.

    Attributes:
        num_layers, num_kv_heads, head_dim: the model's.
        dtype: of keys and values.
    """

    num_layers: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype

    @property
    def bytes_per_token(self) -> int:
        """Keys and values of one position in all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * self.dtype.itemsize


def allocate_kv(shape: KVShape, num_slots: int) -> tuple[LayerCache, ...]:
    """Reserve the cache: one ``LayerCache`` a layer."""
    size = (num_slots, shape.num_kv_heads, shape.head_dim)
    return tuple(
        LayerCache(torch.zeros(size, dtype=shape.dtype), torch.zeros(size, dtype=shape.dtype))
        for _ in range(shape.num_layers)
    )
