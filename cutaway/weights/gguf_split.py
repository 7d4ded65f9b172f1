"""Finds all parts of a GGUF model that was split into several files.

Owns the naming (``x-00001-of-00003.gguf``) and the keys ``split.no``, ``split.count`` and ``split.tensors.count``.
Refuses to know the format of a single file. Standard library only. Invariant: what it returns is a whole model, its
parts in order, no tensor in two of them. Source: the conventions of llama.cpp's ``gguf-split``, which also writes
``split.count = 0`` into files that it merged.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from cutaway.errors import CorruptFile, UnknownModel
from cutaway.weights.gguf_header import GGUFHeader, read_gguf_header

MAX_PARTS = 1000

_PART_NAME = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)
_HINT = "keep all parts of a split model in one folder, under the names that they were published with"


def read_gguf_model(path: Path) -> tuple[GGUFHeader, ...]:
    """Read the headers of the model that the file at ``path`` is, or of which it is any part.

    Raises:
        UnknownModel: there is no such file.
        ModelError: it cannot be read.
        CorruptFile: a part is missing, damaged, or does not belong to the others.
        UnsupportedModel: the version of a file or the type of a tensor is not known.
    """
    opened = read_gguf_header(path)
    count = _num_parts(opened)
    if count <= 1:
        return (opened,)
    part_paths = _part_paths(path, count)
    parts = tuple(
        opened if part_path == path else _read_part(part_path, number, count)
        for number, part_path in enumerate(part_paths, start=1)
    )
    for number, part in enumerate(parts, start=1):
        _check_part(part, number, count)
    _check_tensors(parts)
    return parts


def _num_parts(header: GGUFHeader) -> int:
    return header.metadata.integer("split.count", default=1, minimum=0, maximum=MAX_PARTS)


def _part_paths(path: Path, count: int) -> list[Path]:
    match = _PART_NAME.fullmatch(path.name)
    if match is None or int(match["count"]) != count:
        raise CorruptFile(
            f"{path}: the file is one of {count} parts, but it is not named like one; "
            f"such names end in -00001-of-{count:05}.gguf",
            hint=_HINT,
        )
    return [path.with_name(f"{match['stem']}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)]


def _read_part(path: Path, number: int, count: int) -> GGUFHeader:
    try:
        return read_gguf_header(path)
    except UnknownModel:
        raise CorruptFile(f"{path}: part {number} of {count} is missing", hint=_HINT) from None


def _check_part(part: GGUFHeader, number: int, count: int) -> None:
    index = part.metadata.integer("split.no")
    if index != number - 1 or _num_parts(part) != count:
        raise CorruptFile(
            f"{part.file.path}: by its name the file is part {number} of {count}, "
            f"but it says that it is part {index + 1} of {_num_parts(part)}",
            hint=_HINT,
        )


def _check_tensors(parts: Sequence[GGUFHeader]) -> None:
    owners: dict[str, Path] = {}
    for part in parts:
        for tensor in part.file.tensors:
            if tensor.name in owners:
                raise CorruptFile(
                    f"{part.file.path}: tensor {tensor.name!r} is also in {owners[tensor.name]}", hint=_HINT
                )
            owners[tensor.name] = part.file.path
    expected = parts[0].metadata.integer("split.tensors.count")
    if len(owners) != expected:
        raise CorruptFile(
            f"{parts[0].file.path}: the {len(parts)} parts have {len(owners):,} tensors together, "
            f"but split.tensors.count says {expected:,}",
            hint=_HINT,
        )
