"""Importing numpy and torch, which are slow, large, and take neither an interrupt nor a lack of memory well."""

from collections.abc import Iterator
from contextlib import contextmanager

from cutaway.engine.interrupts import interrupts_held
from cutaway.errors import CutawayError, OutOfMemory
from cutaway.machine import address_room_bytes

# Address space that they take when they are imported, torch 2.13 with numpy. With less, their libraries abort the
# process.
NUMPY_ADDRESS_BYTES = 150_000_000
TORCH_ADDRESS_BYTES = 650_000_000


@contextmanager
def importing_numpy() -> Iterator[None]:
    """Around the import of anything that imports numpy; raises as ``importing_torch``."""
    with _importing("numpy", NUMPY_ADDRESS_BYTES):
        yield


@contextmanager
def importing_torch() -> Iterator[None]:
    """Around the import of anything that imports torch.

    Raises:
        OutOfMemory: this process may not have as much address space as it needs.
        CutawayError: it cannot be loaded.
    """
    with _importing("torch", TORCH_ADDRESS_BYTES):
        yield


@contextmanager
def _importing(name: str, num_bytes: int) -> Iterator[None]:
    room = address_room_bytes()
    if room is not None and room < num_bytes:
        raise OutOfMemory(
            f"{name}, which does the arithmetic,", num_bytes, room, hint="raise the limit of the process: ulimit -v"
        )
    try:
        with interrupts_held():
            yield
    except (ImportError, OSError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise CutawayError(
            f"{name}, which does the arithmetic, cannot be loaded: {reason}",
            hint="there may be too little memory for it, or its installation may be damaged",
        ) from None
