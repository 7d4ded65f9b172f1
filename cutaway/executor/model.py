"""The seam to whatever computes a step."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from cutaway.kernels.batch import LayerStore, TokenBatch
from cutaway.kernels.softmax import RowScan
from cutaway.models.config import ModelConfig


class Model(Protocol):
    """A decoder over a flat batch and a paged cache."""

    @property
    def config(self) -> ModelConfig:
        """Its numbers."""
        ...

    @property
    def cache_block(self) -> int:
        """Slots whose keys and values it keeps together; blocks of the cache are a multiple of it."""
        ...

    def compute(
        self, batch: TokenBatch, cache: Sequence[LayerStore], sampled: Sequence[int]
    ) -> npt.NDArray[np.float32]:
        """Compute all rows of a step, and store their keys and values.

        Args:
            batch: the rows.
            cache: of each layer.
            sampled: the rows whose logits are wanted.

        Returns:
            float32 [samples, vocab]: the scores of every token after those rows.
        """
        ...

    def scan(self, logits: npt.NDArray[np.float32]) -> list[RowScan]:
        """What is to be known about each row of ``compute``'s result before a token is chosen."""
        ...
