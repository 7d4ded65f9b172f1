"""The cache's memory: keys and values of every layer, addressed by slot.

Layers that see equally far back form a group with a pool of its own. A slot is ``block * block_size + offset``; one
more slot at the end of each group, the *empty slot*, stays zero for ever and stands for positions that are given back.
Memory is reserved at once and touched only when it is written, so an unused part of the cache costs address space,
not RAM; until then it reads as zeros.
"""

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cutaway.kernels.batch import LayerStore
from cutaway.models.config import ModelConfig
from cutaway.scheduler.plan import BlockCopy


@dataclass(frozen=True, slots=True)
class KVGroup:
    """What the cache holds for one group of layers.

    Attributes:
        window: positions that a row sees in these layers; ``None`` for all.
        layers: which layers of the model they are.
        bytes_per_token: keys and values of one position, in all of them.
        cost_per_key: multiplications of a row with one key and value in all of them, as a share of those with weights.
    """

    window: int | None
    layers: tuple[int, ...]
    bytes_per_token: int
    cost_per_key: float


def kv_groups(config: ModelConfig, number_bytes: int) -> tuple[KVGroup, ...]:
    """The groups of a model whose keys and values are numbers of so many bytes, in the order of ``config.windows``."""
    bytes_per_layer = 2 * config.num_kv_heads * config.head_dim * number_bytes
    groups = []
    for window in config.windows:
        layers = tuple(index for index, layer in enumerate(config.layers) if layer.window == window)
        cost_per_key = len(layers) * 2 * config.query_size / config.num_row_weights
        groups.append(KVGroup(window, layers, len(layers) * bytes_per_layer, cost_per_key))
    return tuple(groups)


class KVStore:
    """The cache of one model, all zeros at first.

    Args:
        config: of the model.
        number_bytes: of a number in keys and values: 2 for bfloat16, 4 for float32.
        block_size: positions in a block.
        num_blocks: of each group, in the order of ``config.windows``.
    """

    def __init__(self, config: ModelConfig, number_bytes: int, block_size: int, num_blocks: Sequence[int]) -> None:
        self.block_size = block_size
        self.windows = config.windows
        self.empty_slots = tuple(count * block_size for count in num_blocks)
        self._groups: list[np.ndarray[Any, Any]] = []  # each [layers, 2, slots, kv_heads, head_dim]
        by_layer: dict[int, LayerStore] = {}
        for group, empty_slot in zip(kv_groups(config, number_bytes), self.empty_slots, strict=True):
            # An anonymous mapping, which occupies nothing until it is written.
            memory = mmap.mmap(-1, (empty_slot + 1) * group.bytes_per_token)
            size = (len(group.layers), 2, empty_slot + 1, config.num_kv_heads, config.head_dim)
            whole = np.frombuffer(memory, dtype=f"u{number_bytes}").reshape(size)
            self._groups.append(whole)
            by_layer |= {
                layer: LayerStore(key=part[0], value=part[1]) for layer, part in zip(group.layers, whole, strict=True)
            }
        self.layers = tuple(by_layer[layer] for layer in range(len(config.layers)))

    def copy(self, copy: BlockCopy) -> None:
        """Copy what a block holds, in all layers of its group."""
        group, size = self._groups[copy.group], self.block_size
        source, target = copy.source * size, copy.target * size
        group[:, :, target : target + size] = group[:, :, source : source + size]
