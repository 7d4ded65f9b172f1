"""What the header of a weight file says about its tensors, whatever the format, and the checks that formats share.

Owns the description of tensors and the safe opening of files. Refuses to know formats and to decode anything; standard
library only. Invariant of a ``TensorFile``: names are unique, no tensor is empty, and each lies inside the file without
touching another one's bytes.
"""

import errno
import mmap
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cutaway.errors import CorruptFile, ModelError, OutOfMemory, UnknownModel
from cutaway.machine import available_memory_bytes

FETCH_AGAIN = "the file is damaged or was cut while it was fetched; fetch it again"


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where one tensor lies and how it is stored.

    Attributes:
        name: the name in the file.
        shape: output dimension first, input dimension last (rows of ``shape[-1]`` values are contiguous).
        storage: name of the stored type, as its file format spells it: ``Q4_1``, ``BF16``.
        offset: first byte, counted from the start of the file.
        num_bytes: how many bytes.
    """

    name: str
    shape: tuple[int, ...]
    storage: str
    offset: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class TensorFile:
    """One file with tensors.

    Attributes:
        path: where it lies.
        num_bytes: size of the file.
        header_sha256: SHA-256 over the bytes of its header, hexadecimal.
        tensors: in file order.
    """

    path: Path
    num_bytes: int
    header_sha256: str
    tensors: tuple[TensorInfo, ...]


def map_file(path: Path) -> mmap.mmap:
    """Map a whole regular file into memory, read-only.

    Raises:
        UnknownModel: there is no such file.
        ModelError: it cannot be read, or is not a regular file.
        CorruptFile: it is empty.
        OutOfMemory: this process may not have as many addresses.
    """
    try:
        # Non-blocking, because opening a pipe would wait for its other end.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise UnknownModel(f"{path}: there is no such file", hint="check the path of the model") from None
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ModelError(f"{path}: not a regular file", hint="give the path of a model file")
        if status.st_size == 0:
            raise CorruptFile(f"{path}: the file is empty (0 bytes)", hint=FETCH_AGAIN)
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    except OSError as error:
        if error.errno == errno.ENOMEM:
            raise OutOfMemory(f"opening {path.name}", status.st_size, available_memory_bytes()) from None
        raise unreadable(path, error) from None
    finally:
        os.close(descriptor)


def unreadable(path: Path, error: Exception) -> ModelError:
    """The error for a file or folder that is there but cannot be read."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return ModelError(f"{path}: cannot be read: {reason}", hint="check the path and its permissions")


def check_extents(path: Path, tensors: Sequence[TensorInfo], data_offset: int, file_bytes: int) -> None:
    """Check that every tensor, all of which begin at or after ``data_offset``, ends in the file, and none share bytes.

    Raises:
        CorruptFile: one does not; names it, its extent and the limit.
    """
    end = data_offset
    last: TensorInfo | None = None
    for tensor in sorted(tensors, key=lambda tensor: tensor.offset):
        assert tensor.offset >= data_offset, "offsets in files count from the start of the data and are not negative"
        tensor_end = tensor.offset + tensor.num_bytes
        if tensor_end > file_bytes:
            raise CorruptFile(
                f"{path}: tensor {tensor.name!r} takes bytes {tensor.offset:,} to {tensor_end:,}, "
                f"but the file's data are bytes {data_offset:,} to {file_bytes:,}",
                hint=FETCH_AGAIN,
            )
        if last is not None and tensor.offset < end:
            raise CorruptFile(
                f"{path}: tensor {tensor.name!r} begins at byte {tensor.offset:,}, "
                f"inside tensor {last.name!r}, which ends at byte {end:,}",
                hint=FETCH_AGAIN,
            )
        end, last = tensor_end, tensor


def describe_content(head: bytes) -> str:
    """Say in words what a file looks like that is not what was expected, from its first bytes."""
    text = head[:64].lstrip().lower()
    for signature, description in _SIGNATURES:
        if head.startswith(signature) or text.startswith(signature):
            return description
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 32:
        return "a safetensors file"
    return f"something else, its first bytes are {head[:8].hex(' ')}"


_SIGNATURES = (
    (b"GGUF", "a GGUF file"),
    (b"FUGG", "a GGUF file with its bytes swapped"),
    (b"lmgg", "a GGML file from before GGUF"),
    (b"tjgg", "a GGJT file from before GGUF"),
    (b"fmgg", "a GGMF file from before GGUF"),
    (b"PK\x03\x04", "a ZIP archive, such as a PyTorch checkpoint"),
    (b"\x80\x02", "a Python pickle"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x7fELF", "a program"),
    (b"%PDF", "a PDF document"),
    (b"<!doctype html", "a web page"),
    (b"<html", "a web page"),
    (b"version https://git-lfs", "a Git LFS pointer, not the file that it stands for"),
    (b"{", "a JSON document"),
)
