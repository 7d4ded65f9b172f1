"""The ``WeightSource`` of checkpoints that lie in files, whatever their format.

Owns the way from a name to the bytes of a tensor. Refuses to know formats and architectures: those who open a
checkpoint describe each tensor by an ``Entry``. Invariant: reading takes some megabytes, and leaves no page of the file
resident.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from math import prod
from typing import Any

import numpy as np

from cutaway.errors import MissingTensor, WrongShape
from cutaway.quant.vectors import decode_vector, undecodable
from cutaway.weights.mapped_file import MappedFile
from cutaway.weights.source import Bytes, Vector
from cutaway.weights.tensor_file import TensorFile, TensorInfo

PIECE_BYTES = 8 * 2**20

Rows = np.ndarray[Any, Any]  # [rows, ...] of any type


def as_stored(rows: Rows) -> Rows:
    """Arrange nothing."""
    return rows


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a source.

    Attributes:
        file: the file that it lies in.
        tensor: where it lies there.
        arrange: brings rows, whether stored or decoded, into the order of ``WeightSource``.
        rows_together: ``arrange`` gets a multiple of so many rows, from the first one on.
        missing: what has to be added to each number of a vector, because the format leaves it out.
    """

    file: TensorFile
    tensor: TensorInfo
    arrange: Callable[[Rows], Rows] = as_stored
    rows_together: int = 1
    missing: float = 0.0


class MappedSource:
    """Implements ``WeightSource`` for ``entries``, by canonical name in file order."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self._entries = dict(entries)
        self._read: set[str] = set()
        self._files = {
            entry.file.path: MappedFile(entry.file.path, entry.file.num_bytes) for entry in self._entries.values()
        }

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

    def read_rows(self, name: str, shape: tuple[int, ...]) -> Iterator[Bytes]:
        """See ``WeightSource.read_rows``; raises as that.

        Raises:
            CorruptFile: the file has changed since it was opened.
        """
        entry = self._entry(name, shape)
        self._read.add(name)
        return self._pieces(entry)

    def read_vector(self, name: str, shape: tuple[int, ...]) -> Vector:
        """See ``WeightSource.read_vector``; raises as that.

        Raises:
            CorruptFile: the file has changed since it was opened.
        """
        entry = self._entry(name, shape)
        tensor, file = entry.tensor, self._files[entry.file.path]
        decoded = decode_vector(file.read_bytes(tensor.offset, tensor.num_bytes), tensor.storage)
        if decoded is None:
            raise undecodable(f"{file.path}: tensor {name!r} is stored as {tensor.storage}, which")
        vector: Vector = entry.arrange(decoded.reshape(shape))
        if entry.missing:
            vector += np.float32(entry.missing)
        file.release(tensor.offset, tensor.num_bytes)
        self._read.add(name)
        return vector

    def unread(self) -> tuple[str, ...]:
        """See ``WeightSource.unread``."""
        return tuple(name for name in self._entries if name not in self._read)

    def close(self) -> None:
        """See ``WeightSource.close``."""
        for file in self._files.values():
            file.close()

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

    def _pieces(self, entry: Entry) -> Iterator[Bytes]:
        """Runs of whole groups of rows, each of about ``PIECE_BYTES``."""
        tensor, file = entry.tensor, self._files[entry.file.path]
        num_rows = prod(tensor.shape[:-1])
        row_bytes = tensor.num_bytes // num_rows
        step = max(1, PIECE_BYTES // (row_bytes * entry.rows_together)) * entry.rows_together
        for first in range(0, num_rows, step):
            count = min(step, num_rows - first)
            begin, num_bytes = tensor.offset + first * row_bytes, count * row_bytes
            yield entry.arrange(file.read_bytes(begin, num_bytes).reshape(count, row_bytes))
            file.release(begin, num_bytes)
