"""Large memory for numbers, of which only what is used is taken from the machine."""

import mmap
from contextlib import suppress

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]


def reserve(num_bytes: int) -> Bytes:
    """So many zeros, uint8 [num_bytes], in one piece that the system may map in large pages.

    Pages that are never touched cost addresses only.

    Raises:
        OSError, MemoryError: there is no room.
    """
    # Private, because the system rarely has large pages for memory that processes could share.
    memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a system that was built without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, dtype=np.uint8)
