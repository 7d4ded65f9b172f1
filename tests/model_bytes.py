"""Writes tiny GGUF and safetensors files field by field, so that a test can damage one field and no other."""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

STRING = 8
ARRAY = 9
SCALAR_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

F32, F16, Q8_0 = 0, 1, 8
BLOCKS = {F32: (1, 4), F16: (1, 2), Q8_0: (32, 34)}


@dataclass(frozen=True)
class Field:
    """A piece of a file that means one thing."""

    kind: str
    data: bytes


@dataclass(frozen=True)
class Value:
    """A metadata value of a GGUF file; for an array, ``element_type`` is the type of what ``content`` lists."""

    type_id: int
    content: object
    element_type: int = STRING


@dataclass(frozen=True)
class Tensor:
    """A tensor of a GGUF file; ``shape`` has the output dimension first, ``data`` defaults to zeros."""

    shape: tuple[int, ...]
    type_id: int = F32
    data: bytes | None = None

    @property
    def bytes(self) -> bytes:
        if self.data is not None:
            return self.data
        size, num_bytes = BLOCKS[self.type_id]
        count = 1
        for length in self.shape:
            count *= length
        return bytes(count // size * num_bytes)


def u32(kind: str, number: int) -> Field:
    return Field(kind, struct.pack("<I", number))


def u64(kind: str, number: int) -> Field:
    return Field(kind, struct.pack("<Q", number))


def text(value: str | bytes) -> list[Field]:
    data = value if isinstance(value, bytes) else value.encode()
    return [u64("length", len(data)), Field("text", data)]


def encode(value: Value) -> list[Field]:
    """The fields of a value, without its type."""
    if value.type_id == STRING:
        assert isinstance(value.content, str | bytes)
        return text(value.content)
    if value.type_id == ARRAY:
        assert isinstance(value.content, list)
        fields = [u32("type", value.element_type), u64("count", len(value.content))]
        for element in value.content:
            fields += encode(element if isinstance(element, Value) else Value(value.element_type, element))
        return fields
    return [Field("number", struct.pack(f"<{SCALAR_CODES[value.type_id]}", value.content))]


def gguf_fields(
    metadata: Mapping[str, Value], tensors: Mapping[str, Tensor], version: int = 3, alignment: int = 32
) -> list[Field]:
    """All fields of a sound GGUF file, in order."""
    fields = [Field("magic", b"GGUF"), u32("version", version)]
    fields += [u64("count", len(tensors)), u64("count", len(metadata))]
    for key, value in metadata.items():
        fields += [*text(key), u32("type", value.type_id), *encode(value)]
    offset = 0
    data: list[Field] = []
    for name, tensor in tensors.items():
        fields += [*text(name), u32("dimensions", len(tensor.shape))]
        fields += [u64("dimension", length) for length in reversed(tensor.shape)]
        fields += [u32("type", tensor.type_id), u64("offset", offset)]
        padding = -len(tensor.bytes) % alignment
        data += [Field("data", tensor.bytes), Field("padding", bytes(padding))]
        offset += len(tensor.bytes) + padding
    header_bytes = sum(len(field.data) for field in fields)
    return [*fields, Field("padding", bytes(-header_bytes % alignment)), *data[: 2 * len(tensors) - 1]]


def join(fields: Sequence[Field]) -> bytes:
    return b"".join(field.data for field in fields)


def with_field(fields: Sequence[Field], index: int, data: bytes) -> bytes:
    """The file with the data of one field replaced, and everything else as it is."""
    changed = list(fields)
    changed[index] = replace(fields[index], data=data)
    return join(changed)


def gguf_bytes(
    metadata: Mapping[str, Value] | None = None,
    tensors: Mapping[str, Tensor] | None = None,
    version: int = 3,
    alignment: int = 32,
) -> bytes:
    """A sound GGUF file."""
    return join(gguf_fields(metadata or ARCHITECTURE, tensors or {}, version, alignment))


ARCHITECTURE = {"general.architecture": Value(STRING, "llama")}

EVERYTHING_METADATA = {
    **ARCHITECTURE,
    "general.alignment": Value(4, 32),
    "llama.block_count": Value(4, 2),
    "llama.rope.freq_base": Value(6, 10000.0),
    "a.u8": Value(0, 200),
    "a.i8": Value(1, -100),
    "a.u16": Value(2, 60_000),
    "a.i16": Value(3, -30_000),
    "a.i32": Value(5, -5),
    "a.flag": Value(7, True),
    "a.u64": Value(10, 2**63),
    "a.i64": Value(11, -(2**62)),
    "a.f64": Value(12, 0.1),
    "tokenizer.ggml.tokens": Value(ARRAY, ["<s>", "", "한국어", "▁a", "x" * 300]),
    "tokenizer.ggml.scores": Value(ARRAY, [0.0, -1.0, -2.5], element_type=6),
    "tokenizer.ggml.token_type": Value(ARRAY, [3, 1, 6], element_type=5),
    "a.nested": Value(
        ARRAY,
        [Value(ARRAY, [1, 2], element_type=4), Value(ARRAY, ["p", "q"])],
        element_type=ARRAY,
    ),
}

EVERYTHING_TENSORS = {
    "token_embd.weight": Tensor((4, 64), Q8_0),
    "output_norm.weight": Tensor((64,), F32),
    "blk.0.attn_q.weight": Tensor((3, 2, 32), F16),
}


def safetensors_bytes(tensors: Mapping[str, tuple[str, Sequence[int], bytes]]) -> bytes:
    """A sound safetensors file of ``name: (dtype, shape, data)``."""
    table: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (dtype, shape, data) in tensors.items():
        table[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    return safetensors_from(table, b"".join(data for _, _, data in tensors.values()))


def safetensors_from(table: object, data: bytes) -> bytes:
    """A file with ``table`` as its header, sound or not."""
    header = json.dumps(table).encode()
    return struct.pack("<Q", len(header)) + header + data
