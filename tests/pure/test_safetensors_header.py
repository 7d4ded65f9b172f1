"""The headers of a Hugging Face style folder: what is read, and how everything that is wrong with them is refused."""

import json
import random
import struct
from pathlib import Path

import pytest
from model_bytes import safetensors_bytes, safetensors_from

from cutaway.errors import CorruptFile, CutawayError, UnknownModel, UnsupportedModel
from cutaway.weights.safetensors_header import (
    MAX_HEADER_BYTES,
    parse_safetensors_header,
    read_safetensors_folder,
    read_safetensors_header,
)

SEED = 20_260_830
NUM_MUTATIONS = 5_000
PATH = Path("model.safetensors")
SOUND = {
    "a": ("F32", (2, 3), bytes(24)),
    "b": ("BF16", (5,), b"b" * 10),
    "c": ("F16", (), b"cc"),
    "d": ("I64", (1,), bytes(8)),
}


def refused(data: bytes, *words: str, kind: type[CutawayError] = CorruptFile) -> None:
    with pytest.raises(kind) as error:
        parse_safetensors_header(data, PATH)
    for word in ("model.safetensors", *words):
        assert word in error.value.message
    assert error.value.hint


def entry(dtype: object = "F32", shape: object = (2,), offsets: object = (0, 8)) -> bytes:
    return safetensors_from({"t": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}, bytes(8))


def test_a_sound_file_is_read_as_it_was_written() -> None:
    data = safetensors_bytes(SOUND)
    file = parse_safetensors_header(data, PATH)
    assert [(tensor.name, tensor.storage, tensor.shape) for tensor in file.tensors] == [
        (name, dtype, shape) for name, (dtype, shape, _) in SOUND.items()
    ]
    for tensor in file.tensors:
        assert data[tensor.offset : tensor.offset + tensor.num_bytes] == SOUND[tensor.name][2]
    assert file.num_bytes == len(data)


def test_a_file_cut_at_any_offset_is_refused(tmp_path: Path) -> None:
    data = safetensors_bytes(SOUND)
    path = tmp_path / "cut.safetensors"
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(CorruptFile, match=r"cut\.safetensors"):
            read_safetensors_header(path)


@pytest.mark.parametrize("length", [MAX_HEADER_BYTES + 1, 2**62, 2**64 - 1])
def test_a_header_beyond_the_limit_is_refused(length: int) -> None:
    refused(struct.pack("<Q", length) + b"{}", f"{length:,} bytes", f"{MAX_HEADER_BYTES:,}")


def test_a_header_beyond_the_file_is_refused() -> None:
    refused(struct.pack("<Q", 1000) + b"{}", "reach to byte 1,008", "ends at byte 10")


def test_a_file_of_another_kind_is_named() -> None:
    refused(b"PK\x03\x04" + bytes(60), "ZIP archive")
    refused(b"GGUF" + bytes(60), "a GGUF file")


@pytest.mark.parametrize(
    ("header", "word"),
    [
        (b"{nonsense}", "not valid JSON"),
        (b'{"a": 1, "a": 2}', "'a' is there twice"),
        (b'{"\\ud800": 1}', "not valid JSON"),
        (b'{"a": "\xff"}', "not valid JSON"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not valid JSON"),
    ],
)
def test_a_header_that_is_no_sound_json_is_refused(header: bytes, word: str) -> None:
    refused(struct.pack("<Q", len(header)) + header, word)


@pytest.mark.parametrize("described", [1, [], {}, {"dtype": "F32"}, {"dtype": "F32", "shape": [2], "offsets": [0, 8]}])
def test_an_incomplete_description_is_refused(described: object) -> None:
    refused(safetensors_from({"t": described}, bytes(8)), "'t'", "dtype, shape and data_offsets")


@pytest.mark.parametrize("shape", [None, "2", [-2], [True, 2], [2.0], [0], [2, 0], [1] * 9, {"a": 2}, [2**63]])
def test_an_impossible_shape_is_refused(shape: object) -> None:
    refused(entry(shape=shape), "'t'", "shape")


@pytest.mark.parametrize(
    "offsets", [None, [0], [0, 8, 8], [0, 4], [8, 0], [-8, 0], [0, 12], [0.0, 8.0], [0, True], [2**62, 2**62 + 4]]
)
def test_offsets_that_contradict_the_shape_are_refused(offsets: object) -> None:
    refused(entry(offsets=offsets), "'t'", "data_offsets", "takes 8 bytes")


def test_a_tensor_out_of_the_file_is_refused() -> None:
    refused(entry(offsets=(4, 12)), "'t'", "the file's data are bytes")
    refused(entry(shape=(2**40, 2**20), offsets=(0, 2**62)), "'t'", "the file's data are bytes")


def test_overlaps_gaps_and_trailing_bytes_are_refused() -> None:
    def two(first: tuple[int, int], second: tuple[int, int], num_bytes: int) -> bytes:
        names = {"a": first, "b": second}
        table = {
            name: {"dtype": "U8", "shape": [end - start], "data_offsets": [start, end]}
            for name, (start, end) in names.items()
        }
        return safetensors_from(table, bytes(num_bytes))

    assert len(parse_safetensors_header(two((4, 8), (0, 4), 8), PATH).tensors) == 2
    refused(two((0, 5), (4, 8), 8), "inside tensor 'a'")
    refused(two((0, 4), (0, 4), 8), "inside tensor 'a'")
    refused(two((0, 4), (5, 8), 8), "header and tensors take")
    refused(two((0, 4), (4, 8), 9), "header and tensors take")


@pytest.mark.parametrize("dtype", ["F4", "f32", "F32 ", 32, None, ["F32"]])
def test_an_unknown_type_is_refused_by_name(dtype: object) -> None:
    refused(entry(dtype=dtype), "'t'", repr(dtype), kind=UnsupportedModel)


def test_damaged_headers_are_refused_or_sound() -> None:
    rng = random.Random(SEED)
    sound = safetensors_bytes(SOUND)
    words = [b"0", b"-1", b"1e9", b"null", b"[]", b"{}", b'"F32"', b'"a"', b"99999999999999999999", b",", b"]", b"true"]
    num_refused = 0
    for number in range(NUM_MUTATIONS):
        data = bytearray(sound)
        for _ in range(rng.choice([1, 1, 2, 4])):
            at = rng.randrange(len(data))
            kind = rng.randrange(4)
            if kind == 0:
                data[at] ^= 1 << rng.randrange(8)
            elif kind == 1:
                data[at : at + rng.randrange(6)] = rng.choice(words)
            elif kind == 2:
                del data[at:]
                data += bytes(8)
            else:
                data[0:8] = struct.pack("<Q", rng.choice([0, 2, at, len(data), 2**31, 2**63]))
        try:
            file = parse_safetensors_header(bytes(data), PATH)
            end = max((tensor.offset + tensor.num_bytes for tensor in file.tensors), default=0)
            assert end in (0, len(data))
        except CutawayError:
            num_refused += 1
        except BaseException as error:
            pytest.fail(f"seed {SEED}, mutation {number}: {error!r} from {bytes(data).hex()}")
    assert 0.5 * NUM_MUTATIONS < num_refused < NUM_MUTATIONS, f"seed {SEED}: {num_refused:,} refused"


def write_shards(folder: Path, weight_map: dict[str, object], shards: dict[str, list[str]]) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    for shard, names in shards.items():
        (folder / shard).write_bytes(safetensors_bytes({name: ("F32", (1,), bytes(4)) for name in names}))


ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def test_shards_are_found_through_their_index(tmp_path: Path) -> None:
    write_shards(tmp_path, {"a": ONE, "b": TWO, "c": TWO}, {ONE: ["a"], TWO: ["b", "c"]})
    files = read_safetensors_folder(tmp_path)
    assert [file.path.name for file in files] == [ONE, TWO]
    assert [tensor.name for file in files for tensor in file.tensors] == ["a", "b", "c"]


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    write_shards(tmp_path, {"a": ONE, "b": TWO}, {ONE: ["a"]})
    with pytest.raises(CorruptFile, match=f"{TWO}: the file is missing"):
        read_safetensors_folder(tmp_path)


def test_index_and_shards_must_name_the_same_tensors(tmp_path: Path) -> None:
    write_shards(tmp_path, {"a": ONE, "b": TWO}, {ONE: ["a"], TWO: ["c"]})
    with pytest.raises(CorruptFile, match="no tensor 'b'"):
        read_safetensors_folder(tmp_path)
    write_shards(tmp_path, {"a": ONE, "b": TWO}, {ONE: ["a", "b"], TWO: ["b"]})
    with pytest.raises(CorruptFile, match="does not put tensor 'b' into this file"):
        read_safetensors_folder(tmp_path)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "", ".", "..", "a\\b", "a\0b", 1, None, ["x"]])
def test_an_index_cannot_lead_out_of_its_folder(tmp_path: Path, name: object) -> None:
    write_shards(tmp_path, {"a": name}, {})
    with pytest.raises(CorruptFile, match="not the name of a file in the same folder"):
        read_safetensors_folder(tmp_path)


@pytest.mark.parametrize("index", ["[]", "{}", '{"weight_map": []}', '{"weight_map": {}}', "", "{"])
def test_a_broken_index_is_refused(tmp_path: Path, index: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(CorruptFile, match=r"model\.safetensors\.index\.json"):
        read_safetensors_folder(tmp_path)


def test_a_folder_without_weights_says_what_is_there_instead(tmp_path: Path) -> None:
    with pytest.raises(UnknownModel, match=r"neither model\.safetensors nor"):
        read_safetensors_folder(tmp_path)
    (tmp_path / "consolidated.safetensors").touch()
    with pytest.raises(UnknownModel) as unknown:
        read_safetensors_folder(tmp_path)
    assert "consolidated.safetensors" in unknown.value.hint
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(UnsupportedModel, match="Python pickles") as unsupported:
        read_safetensors_folder(tmp_path)
    assert "safetensors" in unsupported.value.hint
