"""Reads the header of a GGUF file: version, metadata, and where the tensors lie.

Owns the format up to the tensor data. Refuses to decode tensors and to know what a key or a tensor is for. Standard
library only. Nothing in the file is trusted: every count is checked against the bytes that are left and against a cap
before anything is allocated for it, so a hostile file costs no more memory than its own header. Arrays stay packed
until they are asked for, because a vocabulary has a quarter of a million strings that most readers do not want.

Source: the GGUF specification of ggml (docs/gguf.md), versions 2 and 3, which differ only in that 3 allows big-endian
files; those are refused here.
"""

import hashlib
import mmap
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path

from cutaway.errors import CorruptFile, UnsupportedModel
from cutaway.quant.block_types import BLOCK_TYPES
from cutaway.weights.metadata import Metadata, PackedArray
from cutaway.weights.tensor_file import FETCH_AGAIN, TensorFile, TensorInfo, check_extents, describe_content, map_file

MAX_HEADER_BYTES = 512 * 2**20
MAX_KEYS = 65_536
MAX_TENSORS = 100_000
MAX_NAME_BYTES = 1024
MAX_STRING_BYTES = 16 * 2**20
MAX_ARRAY_LENGTH = 2**24
MAX_NESTED_ARRAYS = 65_536
MAX_NESTING = 4
MAX_DIMENSIONS = 4
MAX_ALIGNMENT = 65_536
DEFAULT_ALIGNMENT = 32

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MIN_KEY_BYTES = 8 + 1 + 4 + 1
_MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_STRING = 8
_ARRAY = 9
_SCALARS = {
    0: ("integer", "B"),
    1: ("integer", "b"),
    2: ("integer", "H"),
    3: ("integer", "h"),
    4: ("integer", "I"),
    5: ("integer", "i"),
    6: ("number", "f"),
    7: ("flag", "?"),
    10: ("integer", "Q"),
    11: ("integer", "q"),
    12: ("number", "d"),
}


@dataclass(frozen=True, slots=True)
class GGUFHeader:
    """The header of one GGUF file.

    Attributes:
        version: 2 or 3.
        alignment: tensors begin at multiples of it, counted from the start of the data.
        metadata: the key/value pairs.
        file: the tensors, with absolute offsets.
    """

    version: int
    alignment: int
    metadata: Metadata
    file: TensorFile


def read_gguf_header(path: Path) -> GGUFHeader:
    """Read and check the header of the GGUF file at ``path``.

    Raises:
        UnknownModel: there is no such file.
        ModelError: it cannot be read.
        CorruptFile: it is no GGUF file, or a damaged one.
        UnsupportedModel: its version or the type of one of its tensors is not known.
    """
    with map_file(path) as mapped:
        return parse_gguf_header(mapped, path)


def parse_gguf_header(buffer: bytes | mmap.mmap, path: Path) -> GGUFHeader:
    """Parse a GGUF file that lies in memory as a whole; ``path`` is for messages. Errors as ``read_gguf_header``."""
    version = _check_version(buffer, path)
    cursor = _Cursor(buffer, path, position=8)
    num_tensors = cursor.count("tensors", MAX_TENSORS, _MIN_TENSOR_BYTES)
    num_keys = cursor.count("metadata keys", MAX_KEYS, _MIN_KEY_BYTES)
    metadata = Metadata(path, _read_metadata(cursor, num_keys))
    alignment = metadata.integer("general.alignment", default=DEFAULT_ALIGNMENT, minimum=1, maximum=MAX_ALIGNMENT)
    if alignment & (alignment - 1):
        raise cursor.corrupt(f"general.alignment is {alignment:,}, but must be a power of two")
    relative = _read_tensors(cursor, num_tensors, alignment)
    with memoryview(buffer) as view, view[: cursor.position] as header:
        digest = hashlib.sha256(header).hexdigest()
    data_offset = -(-cursor.position // alignment) * alignment
    tensors = tuple(
        TensorInfo(tensor.name, tensor.shape, tensor.storage, data_offset + tensor.offset, tensor.num_bytes)
        for tensor in relative
    )
    check_extents(path, tensors, data_offset, len(buffer))
    return GGUFHeader(version, alignment, metadata, TensorFile(path, len(buffer), digest, tensors))


def _check_version(buffer: bytes | mmap.mmap, path: Path) -> int:
    head = buffer[:64]
    if head[:4] != _MAGIC:
        raise CorruptFile(
            f"{path}: not a GGUF file: it looks like {describe_content(head)}",
            hint="a GGUF file begins with the letters GGUF; check what was downloaded",
        )
    if len(head) < 8:
        raise CorruptFile(f"{path}: the file ends after {len(head)} bytes, inside its header", hint=FETCH_AGAIN)
    (version,) = _U32.unpack_from(head, 4)
    assert isinstance(version, int)
    if version in _VERSIONS:
        return version
    if int.from_bytes(head[4:8], "big") in _VERSIONS:
        raise UnsupportedModel(
            f"{path}: a big-endian GGUF file; only little-endian ones are supported",
            hint="convert it with gguf-convert-endian of the gguf package",
        )
    raise UnsupportedModel(
        f"{path}: GGUF version {version} is not supported; versions 2 and 3 are", hint="convert the model again"
    )


def _read_metadata(cursor: "_Cursor", num_keys: int) -> dict[str, object]:
    values: dict[str, object] = {}
    for _ in range(num_keys):
        key = cursor.text("a metadata key", MAX_NAME_BYTES)
        if not key:
            raise cursor.corrupt("a metadata key is empty")
        if key in values:
            raise cursor.corrupt(f"the metadata key {key!r} is there twice")
        values[key] = _read_value(cursor, key, cursor.u32(f"the type of {key!r}"))
    return values


def _read_value(cursor: "_Cursor", key: str, type_id: int) -> object:
    if type_id == _STRING:
        return cursor.text(f"the value of {key!r}", MAX_STRING_BYTES)
    if type_id == _ARRAY:
        return _read_array(cursor, key, depth=1)
    if type_id not in _SCALARS:
        raise cursor.corrupt(f"the value of {key!r} is of type {type_id}, but types are 0 to 12")
    _, code = _SCALARS[type_id]
    start = cursor.skip(struct.calcsize(f"<{code}"), f"the value of {key!r}")
    return struct.unpack_from(f"<{code}", cursor.buffer, start)[0]


def _read_array(cursor: "_Cursor", key: str, depth: int) -> PackedArray:
    what = f"the array {key!r}"
    cursor.num_arrays += 1
    if depth > MAX_NESTING or cursor.num_arrays > MAX_NESTED_ARRAYS:
        raise cursor.corrupt(
            f"{what} is nested too deeply or widely; limits are {MAX_NESTING} levels and {MAX_NESTED_ARRAYS:,} arrays"
        )
    type_id = cursor.u32(f"the element type of {what}")
    if type_id in _SCALARS:
        kind, code = _SCALARS[type_id]
        width = struct.calcsize(f"<{code}")
        length = cursor.count(f"elements of {what}", MAX_ARRAY_LENGTH, width)
        start = cursor.skip(length * width, what)
        return PackedArray(kind, length, _PackedScalars(cursor.buffer[start : cursor.position], f"<{length}{code}"))
    if type_id == _STRING:
        length = cursor.count(f"elements of {what}", MAX_ARRAY_LENGTH, _U64.size)
        start = cursor.position
        cursor.skip_strings(length, what)
        return PackedArray(
            "text", length, _PackedStrings(cursor.buffer[start : cursor.position], length, cursor.path, key)
        )
    if type_id == _ARRAY:
        length = cursor.count(f"elements of {what}", MAX_NESTED_ARRAYS, _U32.size + _U64.size)
        arrays = tuple(_read_array(cursor, key, depth + 1) for _ in range(length))
        return PackedArray("array", length, lambda: arrays)
    raise cursor.corrupt(f"the elements of {what} are of type {type_id}, but types are 0 to 12")


def _read_tensors(cursor: "_Cursor", num_tensors: int, alignment: int) -> list[TensorInfo]:
    tensors: dict[str, TensorInfo] = {}
    for _ in range(num_tensors):
        tensor = _read_tensor(cursor)
        if tensor.name in tensors:
            raise cursor.corrupt(f"tensor {tensor.name!r} is there twice")
        if tensor.offset % alignment:
            raise cursor.corrupt(
                f"tensor {tensor.name!r} begins at byte {tensor.offset:,} of the data, no multiple of {alignment}"
            )
        tensors[tensor.name] = tensor
    return list(tensors.values())


def _read_tensor(cursor: "_Cursor") -> TensorInfo:
    """Read one entry; its offset still counts from the start of the data."""
    name = cursor.text("the name of a tensor", MAX_NAME_BYTES)
    if not name:
        raise cursor.corrupt("the name of a tensor is empty")
    num_dimensions = cursor.u32(f"the number of dimensions of {name!r}")
    if not 1 <= num_dimensions <= MAX_DIMENSIONS:
        raise cursor.corrupt(f"tensor {name!r} has {num_dimensions:,} dimensions, limits are 1 to {MAX_DIMENSIONS}")
    # The file has the fastest dimension first.
    shape = tuple(cursor.u64(f"the shape of {name!r}") for _ in range(num_dimensions))[::-1]
    type_id = cursor.u32(f"the type of {name!r}")
    offset = cursor.u64(f"the offset of {name!r}")
    if 0 in shape:
        raise cursor.corrupt(f"tensor {name!r} has shape {list(shape)}, but no dimension may be 0")
    block_type = BLOCK_TYPES.get(type_id)
    if block_type is None:
        raise UnsupportedModel(
            f"{cursor.path}: tensor {name!r} is of type {type_id}, which is not known",
            hint="use another quantization of the model, for example Q4_K or Q8_0",
        )
    if shape[-1] % block_type.block_size:
        raise cursor.corrupt(
            f"tensor {name!r} has rows of {shape[-1]:,} values, no multiple of the {block_type.block_size} "
            f"of a {block_type.name} block"
        )
    return TensorInfo(name, shape, block_type.name, offset, prod(shape[:-1]) * block_type.row_bytes(shape[-1]))


class _Cursor:
    """A place in the header that only moves forward and never past its end.

    Invariant: ``position <= end <= len(buffer)``. ``num_arrays`` counts the arrays seen so far.
    """

    def __init__(self, buffer: bytes | mmap.mmap, path: Path, position: int) -> None:
        self.buffer = buffer
        self.path = path
        self.position = position
        self.end = min(len(buffer), MAX_HEADER_BYTES)
        self.num_arrays = 0

    def corrupt(self, message: str) -> CorruptFile:
        return CorruptFile(f"{self.path}: {message}", hint=FETCH_AGAIN)

    def skip(self, num_bytes: int, what: str) -> int:
        """Move over ``num_bytes``, which must be there; returns where they begin."""
        start = self.position
        if num_bytes > self.end - start:
            raise self._ends(what, start + num_bytes)
        self.position = start + num_bytes
        return start

    def u32(self, what: str) -> int:
        return int(_U32.unpack_from(self.buffer, self.skip(4, what))[0])

    def u64(self, what: str) -> int:
        return int(_U64.unpack_from(self.buffer, self.skip(8, what))[0])

    def count(self, what: str, maximum: int, min_bytes_each: int) -> int:
        """A number of things to come, each of at least ``min_bytes_each`` bytes."""
        count = self.u64(f"the number of {what}")
        if count > maximum:
            raise self.corrupt(f"the number of {what} is {count:,}, the limit is {maximum:,}")
        if count * min_bytes_each > self.end - self.position:
            raise self._ends(f"{count:,} {what}", self.position + count * min_bytes_each)
        return count

    def text(self, what: str, max_bytes: int) -> str:
        length = self.u64(f"the length of {what}")
        if length > max_bytes:
            raise self.corrupt(f"{what} is {length:,} bytes long, the limit is {max_bytes:,}")
        start = self.skip(length, what)
        try:
            return self.buffer[start : self.position].decode()
        except UnicodeDecodeError as error:
            raise self.corrupt(f"{what} at byte {start:,} is not valid UTF-8: {error.reason}") from None

    def skip_strings(self, count: int, what: str) -> None:
        """Move over ``count`` strings; the inner loop of reading a vocabulary."""
        buffer, unpack, limit = self.buffer, _U64.unpack_from, self.end - 8
        position = self.position
        for _ in range(count):
            if position > limit:
                raise self._ends(what, position + 8)
            position += 8 + unpack(buffer, position)[0]
        if position > self.end:
            raise self._ends(what, position)
        self.position = position

    def _ends(self, what: str, needed: int) -> CorruptFile:
        if needed > MAX_HEADER_BYTES and self.end == MAX_HEADER_BYTES:
            return self.corrupt(f"the header is larger than the limit of {MAX_HEADER_BYTES:,} bytes, inside {what}")
        return self.corrupt(f"{what} would reach to byte {needed:,}, but the file ends at byte {self.end:,}")


@dataclass(frozen=True, slots=True)
class _PackedScalars:
    """Fixed-width elements; ``layout`` decodes all of them."""

    data: bytes
    layout: str

    def __call__(self) -> tuple[object, ...]:
        return struct.unpack(self.layout, self.data)


@dataclass(frozen=True, slots=True)
class _PackedStrings:
    """Length-prefixed strings, whose lengths are known to fill ``data`` exactly."""

    data: bytes
    length: int
    path: Path
    key: str

    def __call__(self) -> tuple[object, ...]:
        data, unpack, position = self.data, _U64.unpack_from, 0
        texts: list[str] = []
        try:
            for _ in range(self.length):
                start = position + 8
                position = start + unpack(data, position)[0]
                texts.append(data[start:position].decode())
        except UnicodeDecodeError as error:
            raise CorruptFile(
                f"{self.path}: element {len(texts):,} of {self.key!r} is not valid UTF-8: {error.reason}",
                hint=FETCH_AGAIN,
            ) from None
        return tuple(texts)
