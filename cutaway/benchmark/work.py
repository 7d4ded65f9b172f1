"""What a model has to read and to multiply, and what a machine can. Standard library only.

A MAC is a multiplication with its addition. What is left out is small beside the rest: norms, rotation, softmax,
the rows of the embedding, and whatever a kernel reads twice.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The two bounds of a machine, as they were measured.

    Attributes:
        num_threads: threads that measured.
        read_bytes: size of the buffer that was read.
        read_gb_per_second: at which it was.
        arithmetic: what was multiplied.
        gmac_per_second: billions of MACs a second.
    """

    num_threads: int
    read_bytes: int
    read_gb_per_second: float
    arithmetic: str
    gmac_per_second: float


@dataclass(frozen=True, slots=True)
class ModelWork:
    """The sizes that matter.

    Attributes:
        num_row_weights: weights that every row is multiplied with, without the output head.
        num_head_weights: weights of the output head, which only rows that a token is chosen after go through.
        matrix_bytes: all those weights, as they are kept in memory.
        query_size: width of all query heads together.
        windows: positions that a row sees in each layer; ``None`` for all.
        kv_bytes: key and value of one position in one layer.
    """

    num_row_weights: int
    num_head_weights: int
    matrix_bytes: int
    query_size: int
    windows: tuple[int | None, ...]
    kv_bytes: int

    def prefill_macs(self, num_tokens: int) -> int:
        """MACs of reading a prompt and choosing the token after it."""
        num_keys = sum(_keys_of_prompt(num_tokens, window) for window in self.windows)
        return num_tokens * self.num_row_weights + self.num_head_weights + 2 * self.query_size * num_keys

    def decode_macs(self, contexts: Iterable[int]) -> int:
        """MACs of a step that computes one row in each context; a context counts the row's own position."""
        contexts = list(contexts)
        weights = len(contexts) * (self.num_row_weights + self.num_head_weights)
        return weights + 2 * self.query_size * self._keys(contexts)

    def decode_bytes(self, contexts: Iterable[int]) -> int:
        """Bytes that the same step reads: all matrices once, and the keys and values of every context."""
        return self.matrix_bytes + self.kv_bytes * self._keys(contexts)

    def _keys(self, contexts: Iterable[int]) -> int:
        """Positions that rows see, in all layers."""
        seen = list(contexts)
        return sum(length if window is None else min(length, window) for window in self.windows for length in seen)


def _keys_of_prompt(num_tokens: int, window: int | None) -> int:
    """Positions that all rows of a prompt see in one layer: 1, 2, 3 … up to the window."""
    num_growing = num_tokens if window is None else min(num_tokens, window)
    return num_growing * (num_growing + 1) // 2 + (num_tokens - num_growing) * num_growing
