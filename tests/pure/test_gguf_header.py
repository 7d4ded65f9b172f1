"""The header of a GGUF file: what is read, and how everything that is wrong with it is refused."""

import os
import struct
from pathlib import Path

import pytest
from model_bytes import (
    ARCHITECTURE,
    ARRAY,
    EVERYTHING_METADATA,
    EVERYTHING_TENSORS,
    F16,
    F32,
    Q8_0,
    STRING,
    Tensor,
    Value,
    gguf_bytes,
    gguf_fields,
    join,
    with_field,
)

from cutaway.errors import CorruptFile, ModelError, UnknownModel, UnsupportedModel
from cutaway.weights.gguf_header import MAX_ARRAY_LENGTH, parse_gguf_header, read_gguf_header

PATH = Path("model.gguf")


def refused(data: bytes, *words: str, kind: type[ModelError] = CorruptFile) -> None:
    """The file is refused, the message names the file and every one of ``words``, and there is a hint."""
    with pytest.raises(kind) as error:
        parse_gguf_header(data, PATH)
    assert type(error.value) is kind
    for word in ("model.gguf", *words):
        assert word in error.value.message
    assert error.value.hint


@pytest.mark.parametrize("version", [2, 3])
def test_a_sound_file_is_read_as_it_was_written(version: int) -> None:
    data = gguf_bytes(EVERYTHING_METADATA, EVERYTHING_TENSORS, version=version)
    header = parse_gguf_header(data, PATH)
    metadata = header.metadata
    assert (header.version, header.alignment) == (version, 32)
    assert metadata.text("general.architecture") == "llama"
    assert [metadata.integer(f"a.{name}") for name in ("u8", "i8", "u16", "i16", "i32", "u64", "i64")] == [
        200,
        -100,
        60_000,
        -30_000,
        -5,
        2**63,
        -(2**62),
    ]
    assert metadata.number("a.f64") == 0.1
    assert metadata.flag("a.flag") is True
    assert metadata.strings("tokenizer.ggml.tokens") == ("<s>", "", "한국어", "▁a", "x" * 300)
    assert metadata.numbers("tokenizer.ggml.scores") == (0.0, -1.0, -2.5)
    assert metadata.integers("tokenizer.ggml.token_type") == (3, 1, 6)
    assert list(metadata) == list(EVERYTHING_METADATA)


def test_tensors_have_the_output_dimension_first_and_absolute_offsets() -> None:
    data = gguf_bytes(EVERYTHING_METADATA, EVERYTHING_TENSORS)
    tensors = parse_gguf_header(data, PATH).file.tensors
    assert [(tensor.name, tensor.shape, tensor.storage) for tensor in tensors] == [
        ("token_embd.weight", (4, 64), "Q8_0"),
        ("output_norm.weight", (64,), "F32"),
        ("blk.0.attn_q.weight", (3, 2, 32), "F16"),
    ]
    assert [tensor.num_bytes for tensor in tensors] == [4 * 2 * 34, 64 * 4, 3 * 2 * 32 * 2]
    assert tensors[-1].offset + tensors[-1].num_bytes == len(data)
    assert all(tensor.offset % 32 == 0 for tensor in tensors)


def test_a_tensor_lies_where_its_offset_says() -> None:
    marked = {"first.weight": Tensor((3,), F32, b"a" * 12), "second.weight": Tensor((1, 32), Q8_0, b"b" * 34)}
    data = gguf_bytes(ARCHITECTURE, marked)
    for tensor in parse_gguf_header(data, PATH).file.tensors:
        assert data[tensor.offset : tensor.offset + tensor.num_bytes] == marked[tensor.name].bytes


@pytest.mark.parametrize("alignment", [1, 8, 64, 65_536])
def test_every_power_of_two_up_to_the_limit_is_an_alignment(alignment: int) -> None:
    metadata = {**ARCHITECTURE, "general.alignment": Value(4, alignment)}
    data = gguf_bytes(metadata, {"a.weight": Tensor((3,)), "b.weight": Tensor((5,))}, alignment=alignment)
    header = parse_gguf_header(data, PATH)
    assert header.alignment == alignment
    assert header.file.tensors[0].offset % alignment == 0


@pytest.mark.parametrize("alignment", [0, 3, 24, 131_072, 2**32 - 1])
def test_any_other_alignment_is_refused(alignment: int) -> None:
    metadata = {**ARCHITECTURE, "general.alignment": Value(4, alignment)}
    refused(gguf_bytes(metadata), "general.alignment", f"{alignment:,}")


def test_the_digest_depends_on_the_header_and_not_on_the_tensors() -> None:
    def digest(metadata: dict[str, Value], fill: bytes) -> str:
        data = gguf_bytes(metadata, {"a.weight": Tensor((2,), F32, fill * 8)})
        return parse_gguf_header(data, PATH).file.header_sha256

    assert digest(ARCHITECTURE, b"a") == digest(ARCHITECTURE, b"b")
    assert digest(ARCHITECTURE, b"a") != digest({"general.architecture": Value(STRING, "qwen2")}, b"a")


@pytest.mark.parametrize(
    ("head", "description"),
    [
        (b"PK\x03\x04 and so on", "a ZIP archive"),
        (struct.pack("<Q", 90) + b'{"a": {}}', "a safetensors file"),
        (b"\n<!DOCTYPE html><html>", "a web page"),
        (b"<HTML>", "a web page"),
        (b"version https://git-lfs.github.com/spec/v1", "a Git LFS pointer"),
        (b"FUGG\x00\x00\x00\x03", "bytes swapped"),
        (b"tjgg\x01\x00\x00\x00", "before GGUF"),
        (b"\x80\x02}q", "a Python pickle"),
        (b'{"model_type": "llama"}', "a JSON document"),
        (b"\x01\x02\x03\x04\x05\x06\x07\x08", "01 02 03 04"),
    ],
)
def test_a_file_of_another_kind_is_named(head: bytes, description: str) -> None:
    refused(head, "not a GGUF file", description)


def test_a_big_endian_file_is_refused_as_such() -> None:
    refused(b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian", kind=UnsupportedModel)


@pytest.mark.parametrize("version", [0, 1, 4, 2**31])
def test_an_unknown_version_is_refused_by_number(version: int) -> None:
    refused(b"GGUF" + struct.pack("<IQQ", version, 0, 0), f"version {version}", kind=UnsupportedModel)


def test_a_file_cut_at_any_offset_is_refused(tmp_path: Path) -> None:
    data = gguf_bytes(EVERYTHING_METADATA, EVERYTHING_TENSORS)
    path = tmp_path / "cut.gguf"
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(CorruptFile) as error:
            read_gguf_header(path)
        assert str(path) in error.value.message
    path.write_bytes(data)
    assert len(read_gguf_header(path).file.tensors) == 3


def test_a_missing_file_a_folder_and_a_pipe_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(UnknownModel, match="no such file"):
        read_gguf_header(tmp_path / "absent.gguf")
    with pytest.raises(ModelError, match="not a regular file"):
        read_gguf_header(tmp_path)
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(ModelError, match="not a regular file"):
        read_gguf_header(tmp_path / "pipe.gguf")
    (tmp_path / "empty.gguf").touch()
    with pytest.raises(CorruptFile, match="empty"):
        read_gguf_header(tmp_path / "empty.gguf")


def test_a_file_that_may_not_be_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(path: object, flags: int) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", deny)
    with pytest.raises(ModelError, match="cannot be read: Permission denied"):
        read_gguf_header(PATH)


@pytest.mark.parametrize("index", [2, 3])
@pytest.mark.parametrize("count", [2**20, 2**63, 2**64 - 1])
def test_counts_beyond_their_limits_are_refused(index: int, count: int) -> None:
    fields = gguf_fields(EVERYTHING_METADATA, EVERYTHING_TENSORS)
    refused(with_field(fields, index, struct.pack("<Q", count)), f"{count:,}", "limit")


@pytest.mark.parametrize("index", [2, 3])
def test_counts_of_more_than_the_file_can_hold_are_refused(index: int) -> None:
    fields = gguf_fields(EVERYTHING_METADATA, EVERYTHING_TENSORS)
    refused(with_field(fields, index, struct.pack("<Q", 60_000)), "60,000", "the file ends at byte")


def test_a_header_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cutaway.weights.gguf_header.MAX_HEADER_BYTES", 200)
    assert "a" in parse_gguf_header(gguf_bytes({"a": Value(STRING, "x" * 100)}), PATH).metadata
    refused(gguf_bytes({"a": Value(STRING, "x" * 200)}), "header is larger than the limit of 200 bytes")
    refused(gguf_bytes({"a": Value(ARRAY, ["x" * 200])}), "header is larger than the limit of 200 bytes")


@pytest.mark.parametrize("length", [2**24, 2**40, 2**63, 2**64 - 1])
def test_an_array_of_more_than_the_file_can_hold_is_refused(length: int) -> None:
    for element_type in (STRING, ARRAY, 0, 12):
        value = struct.pack("<IIQ", ARRAY, element_type, length)
        refused(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"k" + value, f"{length:,}")


def test_a_longer_array_than_the_limit_is_refused_even_if_it_is_there() -> None:
    data = gguf_bytes({**ARCHITECTURE, "a": Value(ARRAY, [], element_type=0)})
    length = struct.pack("<Q", MAX_ARRAY_LENGTH + 1)
    refused(data[: data.rindex(bytes(8))] + length + bytes(MAX_ARRAY_LENGTH + 1), "limit is 16,777,216")


def test_a_string_in_an_array_that_leaves_the_file_is_refused() -> None:
    for length in (5, 2**62, 2**64 - 1):
        array = struct.pack("<IIQ", ARRAY, STRING, 2) + struct.pack("<Q", 1) + b"a" + struct.pack("<Q", length) + b"b"
        refused(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"k" + array, "'k'", "file ends")


def nested(depth: int) -> Value:
    value = Value(ARRAY, [1], element_type=4)
    for _ in range(depth - 1):
        value = Value(ARRAY, [value], element_type=ARRAY)
    return value


def test_nesting_is_bounded_in_depth_and_width() -> None:
    assert "a" in parse_gguf_header(gguf_bytes({"a": nested(4)}), PATH).metadata
    refused(gguf_bytes({"a": nested(5)}), "nested")
    empty = Value(ARRAY, [], element_type=4)
    wide = Value(ARRAY, [Value(ARRAY, [empty] * 300, element_type=ARRAY)] * 300, element_type=ARRAY)
    refused(gguf_bytes({"a": wide}), "nested", "65,536")


@pytest.mark.parametrize("type_id", [13, 255, 2**32 - 1])
def test_an_unknown_value_type_is_refused_by_number(type_id: int) -> None:
    start = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"k"
    refused(start + struct.pack("<IQ", type_id, 0), "'k'", f"type {type_id}")
    refused(start + struct.pack("<IIQ", ARRAY, type_id, 0), "'k'", f"type {type_id}")


def test_invalid_utf8_is_refused_where_it_is_read() -> None:
    refused(gguf_bytes({"a": Value(STRING, b"\xff\xfe")}), "'a'", "UTF-8")
    metadata = parse_gguf_header(gguf_bytes({"a": Value(ARRAY, ["fine", b"\xc3\x28"])}), PATH).metadata
    with pytest.raises(CorruptFile, match=r"model\.gguf: element 1 of 'a' is not valid UTF-8"):
        metadata.strings("a")


def test_duplicate_and_empty_names_are_refused() -> None:
    fields = gguf_fields({"a": Value(4, 1), "b": Value(4, 2)}, {"t": Tensor((1,)), "u": Tensor((1,))})
    texts = [index for index, field in enumerate(fields) if field.kind == "text"]
    refused(with_field(fields, texts[1], b"a"), "key 'a' is there twice")
    refused(with_field(fields, texts[3], b"t"), "tensor 't' is there twice")
    refused(gguf_bytes({"": Value(4, 1)}), "key is empty")
    refused(gguf_bytes(None, {"": Tensor((1,))}), "name of a tensor is empty")


def test_overlong_names_are_refused_before_they_are_read() -> None:
    refused(gguf_bytes({"k" * 1025: Value(4, 1)}), "1,025 bytes", "limit is 1,024")
    refused(gguf_bytes(None, {"t" * 1025: Tensor((1,))}), "1,025 bytes", "limit is 1,024")


def tensor_file(num_dimensions: int, dims: list[int], type_id: int = F32, offset: int = 0) -> bytes:
    entry = struct.pack("<Q", 1) + b"t" + struct.pack("<I", num_dimensions) + struct.pack(f"<{len(dims)}Q", *dims)
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + entry + struct.pack("<IQ", type_id, offset)
    return head + bytes(-len(head) % 32) + bytes(64)


def test_dimensions_are_one_to_four_and_none_is_zero() -> None:
    assert parse_gguf_header(tensor_file(4, [2, 1, 2, 4]), PATH).file.tensors[0].shape == (4, 2, 1, 2)
    refused(tensor_file(0, []), "0 dimensions", "1 to 4")
    refused(tensor_file(5, [1] * 5), "5 dimensions", "1 to 4")
    refused(tensor_file(2**32 - 1, []), "4,294,967,295 dimensions")
    refused(tensor_file(2, [4, 0]), "[0, 4]")


@pytest.mark.parametrize("dims", [[17], [2**62], [2**32, 2**32], [2**63, 2], [2**64 - 1] * 4])
def test_a_shape_that_reaches_out_of_the_file_is_refused(dims: list[int]) -> None:
    refused(tensor_file(len(dims), dims), "'t'", "the file's data are bytes")


@pytest.mark.parametrize("offset", [64, 2**32, 2**64 - 32])
def test_an_offset_out_of_the_file_is_refused(offset: int) -> None:
    refused(tensor_file(1, [16], offset=offset), "'t'", "the file's data are bytes")


def test_an_offset_off_the_alignment_is_refused() -> None:
    refused(tensor_file(1, [1], offset=4), "'t'", "no multiple of 32")


def test_tensors_that_share_bytes_are_refused() -> None:
    fields = gguf_fields(ARCHITECTURE, {"a": Tensor((16,)), "b": Tensor((16,)), "c": Tensor((16,))})
    offsets = [index for index, field in enumerate(fields) if field.kind == "offset"]
    refused(with_field(fields, offsets[2], struct.pack("<Q", 32)), "inside tensor 'a'")
    refused(with_field(fields, offsets[1], struct.pack("<Q", 0)), "inside tensor 'a'")


def test_tensors_may_lie_in_any_order() -> None:
    fields = gguf_fields(ARCHITECTURE, {"a": Tensor((16,)), "b": Tensor((16,))})
    first, second = (index for index, field in enumerate(fields) if field.kind == "offset")
    fields[first], fields[second] = fields[second], fields[first]
    tensors = parse_gguf_header(join(fields), PATH).file.tensors
    assert tensors[0].offset == tensors[1].offset + 64


def test_an_unknown_tensor_type_is_refused_by_number() -> None:
    refused(tensor_file(1, [1], type_id=4), "'t'", "type 4", kind=UnsupportedModel)
    refused(tensor_file(1, [1], type_id=2**32 - 1), "type 4294967295", kind=UnsupportedModel)


def test_rows_must_be_whole_blocks() -> None:
    refused(tensor_file(2, [33, 1], type_id=Q8_0), "33 values", "32", "Q8_0")
    assert parse_gguf_header(tensor_file(1, [32], type_id=Q8_0), PATH).file.tensors[0].num_bytes == 34
    assert parse_gguf_header(tensor_file(1, [32], type_id=F16), PATH).file.tensors[0].num_bytes == 64


def test_a_file_without_tensors_is_a_vocabulary() -> None:
    header = parse_gguf_header(gguf_bytes({**ARCHITECTURE, "a": Value(STRING, "x" * 21)}), PATH)
    assert header.file.tensors == ()
