"""Reads the headers of a Hugging Face style folder: its configuration, and where its tensors lie.

Owns the safetensors format up to the tensor data, and the index of sharded checkpoints. Refuses to decode tensors.
Standard library only. Nothing in the files is trusted: the header is bounded before it is read, tensors fill the file
without gap or overlap, and index and shards name each other's tensors exactly.

Source: the format description of the safetensors library, which also forbids gaps.
"""

import hashlib
import mmap
from collections.abc import Mapping
from math import prod
from pathlib import Path

from cutaway.errors import CorruptFile, ModelError, UnknownModel, UnsupportedModel
from cutaway.weights.json_file import parse_json, read_json
from cutaway.weights.tensor_file import FETCH_AGAIN, TensorFile, TensorInfo, check_extents, describe_content, map_file

MAX_HEADER_BYTES = 32 * 2**20
MAX_TENSORS = 100_000
MAX_DIMENSIONS = 8
MAX_SHARDS = 1000

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"

_TYPE_BYTES: Mapping[str, int] = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E5M2": 1,
    "F8_E4M3": 1,
    "F8_E8M0": 1,
    "I16": 2,
    "U16": 2,
    "F16": 2,
    "BF16": 2,
    "I32": 4,
    "U32": 4,
    "F32": 4,
    "I64": 8,
    "U64": 8,
    "F64": 8,
}


def read_safetensors_folder(folder: Path) -> tuple[TensorFile, ...]:
    """Read and check the headers of the safetensors files of the model in ``folder``.

    Raises:
        UnknownModel: the folder has no weights.
        UnsupportedModel: it has weights in another format only, or a tensor of an unknown type.
        ModelError: a file cannot be read.
        CorruptFile: a file is missing or damaged, or does not belong to the others.
    """
    if (folder / SINGLE_FILE).exists():
        return (read_safetensors_header(folder / SINGLE_FILE),)
    if (folder / INDEX_FILE).exists():
        return _read_shards(folder)
    raise _no_weights(folder)


def read_safetensors_header(path: Path) -> TensorFile:
    """Read and check the header of one safetensors file. Errors as ``read_safetensors_folder``."""
    with map_file(path) as mapped:
        return parse_safetensors_header(mapped, path)


def parse_safetensors_header(buffer: bytes | mmap.mmap, path: Path) -> TensorFile:
    """Parse a safetensors file that lies in memory as a whole; ``path`` is for messages."""
    if len(buffer) < 8:
        raise CorruptFile(f"{path}: {len(buffer)} bytes are too few for a safetensors file", hint=FETCH_AGAIN)
    length = int.from_bytes(buffer[:8], "little")
    if buffer[8:9] != b"{":
        raise CorruptFile(
            f"{path}: not a safetensors file: it looks like {describe_content(buffer[:64])}",
            hint="check what was downloaded",
        )
    if length > MAX_HEADER_BYTES:
        raise CorruptFile(
            f"{path}: a header of {length:,} bytes is more than the limit of {MAX_HEADER_BYTES:,}", hint=FETCH_AGAIN
        )
    data_offset = 8 + length
    if data_offset > len(buffer):
        raise CorruptFile(
            f"{path}: the header would reach to byte {data_offset:,}, but the file ends at byte {len(buffer):,}",
            hint=FETCH_AGAIN,
        )
    header = buffer[8:data_offset]
    table = parse_json(header, path)
    table.pop("__metadata__", None)
    if len(table) > MAX_TENSORS:
        raise CorruptFile(
            f"{path}: {len(table):,} tensors are more than the limit of {MAX_TENSORS:,}", hint=FETCH_AGAIN
        )
    tensors = [_read_tensor(path, name, entry, data_offset) for name, entry in table.items()]
    tensors.sort(key=lambda tensor: tensor.offset)
    check_extents(path, tensors, data_offset, len(buffer))
    covered = data_offset + sum(tensor.num_bytes for tensor in tensors)
    if covered != len(buffer):
        raise CorruptFile(
            f"{path}: header and tensors take {covered:,} bytes, but the file has {len(buffer):,}", hint=FETCH_AGAIN
        )
    digest = hashlib.sha256(buffer[:8] + header).hexdigest()
    return TensorFile(path, len(buffer), digest, tuple(tensors))


def _read_tensor(path: Path, name: str, entry: object, data_offset: int) -> TensorInfo:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise CorruptFile(
            f"{path}: tensor {name!r} is not described by dtype, shape and data_offsets", hint=FETCH_AGAIN
        )
    storage, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(storage, str) or storage not in _TYPE_BYTES:
        raise UnsupportedModel(
            f"{path}: tensor {name!r} is of type {storage!r}, which is not known",
            hint="use a checkpoint in BF16, F16 or F32",
        )
    if not _are_counts(shape) or len(shape) > MAX_DIMENSIONS or 0 in shape:
        raise CorruptFile(
            f"{path}: tensor {name!r} has shape {shape!r:.80}, but shapes are up to {MAX_DIMENSIONS} positive numbers",
            hint=FETCH_AGAIN,
        )
    num_bytes = prod(shape) * _TYPE_BYTES[storage]
    if not _are_counts(offsets) or len(offsets) != 2 or offsets[1] - offsets[0] != num_bytes:
        raise CorruptFile(
            f"{path}: tensor {name!r} has data_offsets {offsets!r:.80}, but its shape {shape} in {storage} "
            f"takes {num_bytes:,} bytes",
            hint=FETCH_AGAIN,
        )
    return TensorInfo(name, tuple(shape), storage, data_offset + offsets[0], num_bytes)


def _are_counts(value: object) -> bool:
    return isinstance(value, list) and all(type(count) is int and 0 <= count < 2**63 for count in value)


def _read_shards(folder: Path) -> tuple[TensorFile, ...]:
    path = folder / INDEX_FILE
    index, _ = read_json(path)
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CorruptFile(f"{path}: there is no 'weight_map'", hint=FETCH_AGAIN)
    names: dict[str, set[str]] = {}
    for tensor_name, shard_name in weight_map.items():
        # A name that leads out of the folder must not make us open other files.
        if not isinstance(shard_name, str) or not _is_plain_name(shard_name):
            raise CorruptFile(
                f"{path}: {shard_name!r:.80} is not the name of a file in the same folder", hint=FETCH_AGAIN
            )
        names.setdefault(shard_name, set()).add(tensor_name)
    if len(names) > MAX_SHARDS:
        raise CorruptFile(f"{path}: {len(names):,} shards are more than the limit of {MAX_SHARDS:,}", hint=FETCH_AGAIN)
    return tuple(_read_shard(folder / name, names[name]) for name in sorted(names))


def _is_plain_name(name: str) -> bool:
    return name not in {"", ".", ".."} and not {"/", "\\", "\0"} & set(name)


def _read_shard(path: Path, expected: set[str]) -> TensorFile:
    try:
        shard = read_safetensors_header(path)
    except UnknownModel:
        raise CorruptFile(
            f"{path}: the file is missing; {INDEX_FILE} names it", hint="fetch all files of the model"
        ) from None
    present = {tensor.name for tensor in shard.tensors}
    for name in sorted(expected - present):
        raise CorruptFile(f"{path}: there is no tensor {name!r}, which {INDEX_FILE} promises", hint=FETCH_AGAIN)
    for name in sorted(present - expected):
        raise CorruptFile(f"{path}: {INDEX_FILE} does not put tensor {name!r} into this file", hint=FETCH_AGAIN)
    return shard


def _no_weights(folder: Path) -> ModelError | UnknownModel:
    names = sorted(entry.name for entry in folder.iterdir())
    pickles = [name for name in names if name.endswith((".bin", ".pt", ".pth"))]
    if pickles:
        return UnsupportedModel(
            f"{folder}: the weights are Python pickles ({pickles[0]}), which can run code when they are opened",
            hint="use a checkpoint in safetensors or GGUF format, or convert it with the safetensors library",
        )
    others = [name for name in names if name.endswith((".safetensors", ".gguf"))]
    hint = f"there is {others[0]}, which is not one of these names" if others else "fetch all files of the model"
    return UnknownModel(f"{folder}: there is neither {SINGLE_FILE} nor {INDEX_FILE}", hint=hint)
