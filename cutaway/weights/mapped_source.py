"""The ``WeightSource`` of checkpoints that lie in files, whatever their format.

Owns decoding a tensor in chunks straight into its place. Refuses to know formats and architectures: those who open a
checkpoint describe each tensor by an ``Entry``. Invariant: reading a tensor takes some megabytes beside ``out``, and
leaves no page of the file resident.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

import torch
from torch import Tensor

from cutaway.errors import MissingTensor, UnsupportedModel, WrongShape
from cutaway.quant.ggml import CHUNK_VALUES, dequantize, is_decodable
from cutaway.weights.decode_pool import DecodePool
from cutaway.weights.mapped_file import MappedFile
from cutaway.weights.tensor_file import TensorFile, TensorInfo

_RELEASE_BYTES = 8 * 2**20


def as_stored(rows: Tensor) -> Tensor:
    """Arrange nothing."""
    return rows


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a source.

    Attributes:
        file: the file that it lies in.
        tensor: where it lies there.
        arrange: brings decoded float32 rows into the convention of ``WeightSource``; keeps their shape.
        rows_together: ``arrange`` gets a multiple of so many rows, from the first one on.
    """

    file: TensorFile
    tensor: TensorInfo
    arrange: Callable[[Tensor], Tensor] = as_stored
    rows_together: int = 1


class MappedSource:
    """Implements ``WeightSource`` for ``entries``, by canonical name in file order."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self._entries = dict(entries)
        self._read: set[str] = set()
        self._files = {
            entry.file.path: MappedFile(entry.file.path, entry.file.num_bytes) for entry in self._entries.values()
        }
        self._pool = DecodePool()

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        """See ``WeightSource.shape``."""
        return self._entry(name).tensor.shape

    def storage(self, name: str) -> str:
        """See ``WeightSource.storage``."""
        return self._entry(name).tensor.storage

    @torch.inference_mode()
    def read_into(self, name: str, out: Tensor) -> None:
        """See ``WeightSource.read_into``.

        Raises:
            MissingTensor: the checkpoint has no such tensor.
            WrongShape: ``out`` has another shape.
            UnsupportedModel: the stored type cannot be decoded.
        """
        entry = self._entry(name, tuple(out.shape))
        tensor, path = entry.tensor, entry.file.path
        if not is_decodable(tensor.storage):
            raise UnsupportedModel(
                f"{path}: tensor {name!r} is stored as {tensor.storage}, which cannot be decoded",
                hint="use another quantization of the model, for example Q4_K, Q8_0 or BF16",
            )
        assert out.is_floating_point(), f"{out.dtype} cannot hold weights"
        self._read_matrices(entry, tensor.offset, tensor.num_bytes, out)
        self._read.add(name)

    def unread(self) -> tuple[str, ...]:
        """See ``WeightSource.unread``."""
        return tuple(name for name in self._entries if name not in self._read)

    def close(self) -> None:
        """See ``WeightSource.close``."""
        self._pool.close()
        for file in self._files.values():
            file.close()

    @torch.inference_mode()
    def read_stored(self, name: str, shape: tuple[int, int]) -> Tensor:
        """See ``WeightSource.read_stored``; raises as that."""
        entry = self._entry(name, shape)
        tensor = entry.tensor
        stored = self._files[entry.file.path].read_bytes(tensor.offset, tensor.num_bytes).view(shape[0], -1)
        self._read.add(name)
        return entry.arrange(stored)

    def _entry(self, name: str, shape: tuple[int, ...] | None = None) -> Entry:
        entry = self._entries.get(name)
        if entry is None:
            paths = ", ".join(str(path) for path in self._files) or "the checkpoint"
            close = get_close_matches(name, self._entries, n=1)
            raise MissingTensor(
                f"{paths}: there is no tensor {name!r} among the {len(self._entries):,} tensors",
                hint=f"the nearest name is {close[0]!r}" if close else "the file is no complete model",
            )
        if shape is not None and shape != entry.tensor.shape:
            raise WrongShape(
                f"{entry.file.path}: tensor {name!r} has shape {list(entry.tensor.shape)}, but {list(shape)} is needed",
                hint="the weights and the configuration of the model do not belong together",
            )
        return entry

    def _read_matrices(self, entry: Entry, offset: int, num_bytes: int, out: Tensor) -> None:
        """Read the matrices that are stacked in ``out``, one after the other."""
        if out.dim() < 2:
            self._read_vector(entry, offset, num_bytes, out)
        elif out.dim() == 2:
            self._read_rows(entry, offset, num_bytes, out)
        else:
            each = num_bytes // len(out)
            for index, matrix in enumerate(out):
                self._read_matrices(entry, offset + index * each, each, matrix)

    def _read_vector(self, entry: Entry, offset: int, num_bytes: int, out: Tensor) -> None:
        file = self._files[entry.file.path]
        values = dequantize(file.read_bytes(offset, num_bytes).view(1, -1), entry.tensor.storage)
        out.copy_(entry.arrange(values.view(out.shape)))
        file.release(offset, num_bytes)

    def _read_rows(self, entry: Entry, offset: int, num_bytes: int, out: Tensor) -> None:
        file = self._files[entry.file.path]
        row_bytes = num_bytes // len(out)
        packed = file.read_bytes(offset, num_bytes).view(len(out), row_bytes)
        step = _rows_per_chunk(out, entry.rows_together)

        def decode(first: int) -> None:
            # The mode belongs to the thread, and ``out`` may have been made in it.
            with torch.inference_mode():
                values = dequantize(packed[first : first + step], entry.tensor.storage)
                out[first : first + step].copy_(entry.arrange(values))

        stride = max(1, _RELEASE_BYTES // (step * row_bytes)) * step
        for start in range(0, len(out), stride):
            stop = min(start + stride, len(out))
            self._pool.run(decode, range(start, stop, step))
            file.release(offset + start * row_bytes, (stop - start) * row_bytes)


def _rows_per_chunk(out: Tensor, rows_together: int) -> int:
    """Rows of chunks of equal size, none much larger than ``CHUNK_VALUES`` values, that keep groups of rows whole."""
    num_groups = len(out) // rows_together
    groups = max(1, CHUNK_VALUES // (out.shape[1] * rows_together))
    num_chunks = -(-num_groups // groups)
    return -(-num_groups // num_chunks) * rows_together
