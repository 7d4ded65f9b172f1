"""What a model on the disk consists of: one GGUF file, all parts of a split one, or the files of a folder.

Owns the choice of files and their formats. Refuses to open them: whether the content is sound is for
``cutaway.weights``. Invariant: only data formats that cannot carry code are ever chosen, so no pickle, no script.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from cutaway.errors import CorruptFile, UnknownModel, UsageError

SPLIT_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
MAX_SPLITS = 4096

FOLDER_FILES = ("config.json", "generation_config.json", "chat_template.jinja")
SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


class ModelFormat(StrEnum):
    """How a model's files are laid out."""

    GGUF = "gguf"
    SAFETENSORS = "safetensors"


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The files of one model that lie on this machine.

    Attributes:
        name: what to call the model: its built-in name, its reference, or the name of its file or folder.
        path: the GGUF file (of a split one, the first part) or the folder.
        format: how the files are laid out.
        files: every file that may be read, in order.
    """

    name: str
    path: Path
    format: ModelFormat
    files: tuple[Path, ...]

    @property
    def num_bytes(self) -> int:
        """Size of all files."""
        return sum(file.stat().st_size for file in self.files)


def files_at(path: Path, name: str = "") -> ModelFiles:
    """The model at a path that exists.

    Raises:
        UnknownModel: neither a GGUF file nor a folder that ``select_folder_files`` takes, or not readable.
        UsageError: the weights are there only in a format that can carry code.
        CorruptFile: a part of a split file is missing.
    """
    try:
        return _folder(path, name or path.resolve().name) if path.is_dir() else _file(path, name or path.stem)
    except OSError as error:
        raise UnknownModel(f"{path} cannot be read: {error.strerror or error}") from None


def split_parts(filename: str) -> tuple[str, ...]:
    """Names of all parts of the split GGUF file that ``filename`` is a part of; just itself if it is whole.

    Raises:
        CorruptFile: the numbers in the name make no sense.
    """
    match = SPLIT_NAME.fullmatch(filename)
    if match is None:
        return (filename,)
    number, count = int(match["number"]), int(match["count"])
    if not 1 <= number <= count or count > MAX_SPLITS:
        raise CorruptFile(f"{filename} names itself part {number} of {count}; at most {MAX_SPLITS} parts can be read")
    return tuple(f"{match['stem']}-{part:05d}-of-{count:05d}.gguf" for part in range(1, count + 1))


def select_folder_files(names: Iterable[str]) -> tuple[str, ...]:
    """Of a folder's file names, those that belong to a model; empty unless there are a config and weights.

    Weights are ``model.safetensors``, or else ``model.safetensors.index.json`` with the files that it may name: what
    ``cutaway.weights`` can open, so that nothing is fetched that would be refused afterwards. A repository may hold the
    same weights once more, as its publisher's own files beside those of transformers.
    """
    names = sorted(names)
    weights = _weights(names)
    if "config.json" not in names or not weights:
        return ()
    tokenizer = [name for name in names if name.startswith("tokenizer") and name.endswith(".json")]
    return (*(name for name in FOLDER_FILES if name in names), *tokenizer, *weights)


def _weights(names: list[str]) -> list[str]:
    if SINGLE_FILE in names:
        return [SINGLE_FILE]
    shards = [name for name in names if name.endswith(".safetensors")]
    shards = [name for name in shards if name.startswith("model-")] or shards
    return [INDEX_FILE, *shards] if INDEX_FILE in names and shards else []


def _file(path: Path, name: str) -> ModelFiles:
    if not path.is_file():
        raise UnknownModel(f"{path} is neither a file nor a folder")
    if path.suffix == ".safetensors":
        raise UnknownModel(
            f"{path} is only part of a model", hint=f"name its folder, which holds config.json too: {path.parent}"
        )
    if path.suffix in PICKLE_SUFFIXES:
        raise _pickle(path)
    if path.suffix != ".gguf":
        raise UnknownModel(f"{path} is not a .gguf file", hint="models are .gguf files or folders with config.json")
    return _gguf(path, name)


def _gguf(path: Path, name: str) -> ModelFiles:
    files = tuple(path.with_name(part) for part in split_parts(path.name))
    for number, file in enumerate(files, start=1):
        if not file.is_file():
            raise CorruptFile(
                f"part {number} of {len(files)} of {path.name} is missing: {file}",
                hint="put all parts of a split model into one folder",
            )
    return ModelFiles(name, files[0], ModelFormat.GGUF, files)


def _folder(path: Path, name: str) -> ModelFiles:
    names = [file.name for file in path.iterdir() if file.is_file()]
    if chosen := select_folder_files(names):
        return ModelFiles(name, path, ModelFormat.SAFETENSORS, tuple(path / file for file in chosen))
    ggufs = sorted(file for file in names if file.endswith(".gguf"))
    if ggufs:
        raise UnknownModel(f"{path} is a folder of .gguf files", hint="name one of them: " + _listed(ggufs))
    if "config.json" not in names:
        raise UnknownModel(f"{path} has no config.json", hint=f"a model's folder holds config.json and {SINGLE_FILE}")
    if any(file.endswith(PICKLE_SUFFIXES) for file in names):
        raise _pickle(path)
    others = [file for file in names if file.endswith(".safetensors")]
    raise UnknownModel(
        f"{path} has a config.json, but neither {SINGLE_FILE} nor {INDEX_FILE} with its files",
        hint="there is only " + _listed(sorted(others)) if others else "were the weights fetched?",
    )


def _pickle(path: Path) -> UsageError:
    return UsageError(
        f"{path}: weights in pickle files are refused, because such a file can run code",
        hint="convert the model to safetensors or GGUF",
    )


def _listed(names: list[str], limit: int = 8) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
