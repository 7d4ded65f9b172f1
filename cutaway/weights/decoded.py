"""The tensors of a checkpoint as tensors of torch, for models that compute with decoded weights.

Owns decoding in chunks straight into place. Refuses to know files and formats. Invariant: reading a matrix takes some
megabytes beside ``out``.
"""

import math
import warnings

import torch
from torch import Tensor

from cutaway.quant.ggml import CHUNK_VALUES, dequantize, is_decodable
from cutaway.quant.vectors import undecodable
from cutaway.weights.decode_pool import DecodePool
from cutaway.weights.source import Bytes, WeightSource


class DecodedWeights:
    """Decodes what ``stored`` has. A context manager, which ends the threads that decode; ``stored`` stays open."""

    def __init__(self, stored: WeightSource) -> None:
        self.stored = stored
        self._pool = DecodePool()

    def __enter__(self) -> "DecodedWeights":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    @torch.inference_mode()
    def read_into(self, name: str, out: Tensor) -> None:
        """Decode a tensor into ``out``, which has its shape and any floating dtype; ``out`` may be a view.

        Values are computed in float32 and rounded once to the dtype of ``out``.

        Raises:
            MissingTensor: the checkpoint has no such tensor.
            WrongShape: ``out`` has another shape; both are named.
            UnsupportedModel: the stored type cannot be decoded; it is named.
        """
        assert out.is_floating_point(), f"{out.dtype} cannot hold weights"
        shape = tuple(out.shape)
        if out.dim() < 2:
            out.copy_(torch.from_numpy(self.stored.read_vector(name, shape)))
            return
        storage = self.stored.storage(name)
        pieces = self.stored.read_rows(name, shape)
        if not is_decodable(storage):
            raise undecodable(f"tensor {name!r} is stored as {storage}, which")
        rows = out.flatten(0, -2)  # a copy, where a view of a stack of matrices cannot be flattened
        first = 0
        for piece in pieces:
            self._decode(piece, storage, rows[first : first + len(piece)])
            first += len(piece)
        if rows.data_ptr() != out.data_ptr():
            out.copy_(rows.view(shape))

    def _decode(self, piece: Bytes, storage: str, out: Tensor) -> None:
        with warnings.catch_warnings():
            # torch has no read-only tensors and warns; decoding only reads.
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable", category=UserWarning)
            stored = torch.from_numpy(piece)
        num_chunks = math.ceil(out.numel() / CHUNK_VALUES)
        step = math.ceil(len(out) / num_chunks)

        def decode(first: int) -> None:
            # The mode belongs to the thread, and ``out`` may have been made in it.
            with torch.inference_mode():
                out[first : first + step].copy_(dequantize(stored[first : first + step], storage))

        self._pool.run(decode, range(0, len(out), step))
