"""A decoder of torch, as a runner sees it: arrays in, arrays out, the same memory."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutaway.kernels.batch import LayerStore, TokenBatch
from cutaway.kernels.softmax import RowScan, scan_row
from cutaway.layers.batch import LayerCache
from cutaway.models.decoder import Decoder


class TorchModel:
    """Implements ``Model`` with a decoder, whose dtype is that of the cache."""

    cache_block = 1

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self.config = decoder.config
        self._dtype = decoder.embed.weight.dtype

    @torch.inference_mode()
    def compute(
        self, batch: TokenBatch, cache: Sequence[LayerStore], sampled: Sequence[int]
    ) -> npt.NDArray[np.float32]:
        """See ``Model.compute``."""
        tensors = [LayerCache(self._tensor(layer.key), self._tensor(layer.value)) for layer in cache]
        hidden = self.decoder(batch, tensors)
        if not sampled:
            return np.empty((0, self.config.vocab_size), dtype=np.float32)
        logits: npt.NDArray[np.float32] = self.decoder.logits(hidden[list(sampled)]).numpy()
        return logits

    def scan(self, logits: npt.NDArray[np.float32]) -> list[RowScan]:
        """See ``Model.scan``."""
        return [scan_row(np.ascontiguousarray(row)) for row in logits]

    def _tensor(self, bits: np.ndarray[Any, Any]) -> Tensor:
        return torch.from_numpy(bits).view(self._dtype)
