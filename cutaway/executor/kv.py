"""The cache's memory: keys and values of every layer, addressed by slot.

Layers that see equally far back form a group with a pool of its own. A block holds what all layers of its group know
of some positions, in one piece: for each layer the keys and then the values. So memory is touched block by block, and
what a step reads of a request lies close together. A *slot* says where a position lies, in any layer: as many rows of
keys after those of the layer's first. The block after the last one, the *empty* one, stays zero for ever and stands
for positions that are given back.
Memory is reserved at once and touched only when it is written, so an unused part of the cache costs address space,
not RAM; until then it reads as zeros.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cutaway.kernels.batch import Ints, LayerStore
from cutaway.kernels.memory import reserve
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


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """Where the blocks of a group of layers lie.

    Attributes:
        window: positions that a row sees in these layers; ``None`` for all.
        block_size: positions in a block.
        stride: slots from one block to the next, of which the first ``block_size`` are its positions.
        num_blocks: without the empty one.
    """

    window: int | None
    block_size: int
    stride: int
    num_blocks: int

    @property
    def empty_slot(self) -> int:
        """A slot that holds zeros."""
        return self.num_blocks * self.stride

    def slots(self, blocks: Sequence[int]) -> Ints:
        """The slots of the positions that lie in some blocks, in their order, [len(blocks) * block_size] int64."""
        first_slots = np.array(blocks, dtype=np.int64)[:, np.newaxis] * self.stride
        return (first_slots + np.arange(self.block_size)).ravel()


class KVStore:
    """The cache of one model, all zeros at first.

    Args:
        config: of the model.
        number_bytes: of a number in keys and values: 2 for bfloat16, 4 for float32.
        block_size: positions in a block.
        num_blocks: of each group, in the order of ``config.windows``.

    Attributes:
        block_size: positions in a block.
        layouts: of each group.
        layers: of each layer of the model.
    """

    def __init__(self, config: ModelConfig, number_bytes: int, block_size: int, num_blocks: Sequence[int]) -> None:
        self.block_size = block_size
        self._blocks: list[np.ndarray[Any, Any]] = []  # of each group [blocks, numbers]
        layouts: list[BlockLayout] = []
        by_layer: dict[int, LayerStore] = {}
        for group, count in zip(kv_groups(config, number_bytes), num_blocks, strict=True):
            layout = BlockLayout(group.window, block_size, 2 * len(group.layers) * block_size, count)
            memory = reserve((count + 1) * block_size * group.bytes_per_token)
            rows = memory.view(f"u{number_bytes}").reshape(-1, config.num_kv_heads, config.head_dim)
            for place, layer in enumerate(group.layers):
                keys = rows[2 * place * block_size :]
                by_layer[layer] = LayerStore(keys, keys[block_size:], block_size)
            self._blocks.append(rows.reshape(count + 1, -1))
            layouts.append(layout)
        self.layouts = tuple(layouts)
        self.layers = tuple(by_layer[layer] for layer in range(len(config.layers)))

    def copy(self, copy: BlockCopy) -> None:
        """Copy what a block holds, in all layers of its group."""
        blocks = self._blocks[copy.group]
        blocks[copy.target] = blocks[copy.source]
