"""Importing torch, which is slow, large, and takes neither an interrupt nor a lack of memory well."""

from collections.abc import Iterator
from contextlib import contextmanager

from cutaway.cli.interrupts import interrupts_held
from cutaway.errors import CutawayError, OutOfMemory
from cutaway.machine import address_room_bytes

# Address space that torch 2.13 and numpy take when they are imported. With less, their libraries abort the process.
TORCH_ADDRESS_BYTES = 650_000_000


@contextmanager
def importing_torch() -> Iterator[None]:
    """Around the import of anything that imports torch.

    Raises:
        OutOfMemory: this process may not have as much address space as torch needs.
        CutawayError: torch cannot be loaded.
    """
    room = address_room_bytes()
    if room is not None and room < TORCH_ADDRESS_BYTES:
        raise OutOfMemory(
            "torch, which does the arithmetic,",
            TORCH_ADDRESS_BYTES,
            room,
            hint="raise the limit of the process: ulimit -v",
        )
    try:
        with interrupts_held():
            yield
    except (ImportError, OSError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise CutawayError(
            f"torch, which does the arithmetic, cannot be loaded: {reason}",
            hint="there may be too little memory for it, or its installation may be damaged",
        ) from None
