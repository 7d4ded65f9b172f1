"""The cache's memory: keys and values of every layer, addressed by slot.

A slot is ``block * block_size + offset``. Memory is reserved at once and touched only when it is written, so an
unused part of the cache costs address space, not RAM; until then it reads as zeros.
"""

import mmap
from dataclasses import dataclass

import torch

from cutaway.layers.batch import LayerCache
from cutaway.models.config import ModelConfig


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


def kv_shape(config: ModelConfig, dtype: torch.dtype) -> KVShape:
    """The cache that a model needs for keys and values of ``dtype``."""
    return KVShape(len(config.layers), config.num_kv_heads, config.head_dim, dtype)


def allocate_kv(shape: KVShape, num_slots: int) -> tuple[LayerCache, ...]:
    """Reserve the cache: one ``LayerCache`` a layer, all zeros."""
    # An anonymous mapping: torch.zeros would write, and so occupy, all of it at once.
    memory = mmap.mmap(-1, num_slots * shape.bytes_per_token)
    size = (shape.num_layers, 2, num_slots, shape.num_kv_heads, shape.head_dim)
    whole = torch.frombuffer(memory, dtype=shape.dtype).view(size)
    return tuple(LayerCache(key=layer[0], value=layer[1]) for layer in whole)
