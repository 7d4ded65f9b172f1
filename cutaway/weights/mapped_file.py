"""A file mapped into memory whose bytes are seen as arrays.

Owns the mapping and its memory. Refuses to know what the bytes mean. Invariants: the mapping is read-only; an array
that was handed out must not be used after ``close``; pages that were released do not count as resident any longer.
"""

import mmap
from pathlib import Path

import numpy as np

from cutaway.errors import CorruptFile
from cutaway.weights.source import Bytes
from cutaway.weights.tensor_file import map_file


class MappedFile:
    """The file at ``path``, which had ``num_bytes`` when its header was read.

    Raises:
        CorruptFile: it has another size now; also by ``read_bytes``.
        UnknownModel, ModelError: it is gone or cannot be read.
    """

    def __init__(self, path: Path, num_bytes: int) -> None:
        self.path = path
        self.num_bytes = num_bytes
        self._map: mmap.mmap | None = map_file(path)
        self._check_size()

    def read_bytes(self, offset: int, num_bytes: int) -> Bytes:
        """A read-only view, uint8 [num_bytes]."""
        mapped = self._check_size()
        return np.frombuffer(mapped, dtype=np.uint8, count=num_bytes, offset=offset)

    def release(self, offset: int, num_bytes: int) -> None:
        """Give the pages of a range back to the system; they are read from the file again when they are needed."""
        if self._map is None or not hasattr(mmap, "MADV_DONTNEED"):
            return
        start = offset // mmap.PAGESIZE * mmap.PAGESIZE
        self._map.madvise(mmap.MADV_DONTNEED, start, offset + num_bytes - start)

    def close(self) -> None:
        """Drop the mapping; it goes away with the last array that was handed out."""
        self._map = None

    def _check_size(self) -> mmap.mmap:
        # Reading a mapping past the end of its file would kill the process, so look before each tensor.
        assert self._map is not None, f"{self.path} is closed"
        size = self._map.size()
        if size != self.num_bytes:
            raise CorruptFile(
                f"{self.path}: the file had {self.num_bytes:,} bytes when it was opened, and has {size:,} now",
                hint="do not change a model's files while it is in use",
            )
        return self._map
