"""A model's files, opened and checked but not loaded.

Owns the choice of the format and what can be said about a checkpoint without decoding a weight. Refuses to know what an
architecture needs. Importing it and reading metadata needs the standard library only; ``Checkpoint.weights`` is the one
place that brings in numpy.
"""

import hashlib
import os
import stat
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cutaway.errors import UnknownModel, UnsupportedModel
from cutaway.weights.gguf_split import read_gguf_model
from cutaway.weights.json_file import read_json
from cutaway.weights.metadata import Metadata, flatten
from cutaway.weights.safetensors_header import read_safetensors_folder
from cutaway.weights.tensor_file import TensorFile, unreadable

if TYPE_CHECKING:
    from cutaway.weights.source import WeightSource

CONFIG_FILE = "config.json"

_PICKLES = (".bin", ".pt", ".pth", ".ckpt")
_MIN_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model on disk whose headers are sound.

    Attributes:
        path: what was opened: a GGUF file or a folder.
        format: of the weights.
        architecture: its name as the files spell it: ``general.architecture`` or ``model_type``.
        metadata: the keys of the GGUF file, or of ``config.json``.
        files: the files with tensors, all parts of them, in order.
        fingerprint: SHA-256 over headers, configuration and file sizes, hexadecimal; the same files give the same one
            wherever they lie, and weights that were changed in place go unnoticed.
        num_bytes: size of all files with tensors.
        quantization: the stored types of the matrices, most weights first: ``Q4_1 + Q8_0``.
    """

    path: Path
    format: Literal["gguf", "safetensors"]
    architecture: str
    metadata: Metadata
    files: tuple[TensorFile, ...]
    fingerprint: str
    num_bytes: int
    quantization: str

    @property
    def num_weights(self) -> int:
        """Numbers in all tensors."""
        return sum(prod(tensor.shape) for file in self.files for tensor in file.tensors)

    def weights(self) -> "WeightSource":
        """Open the tensors; the caller closes the source. Nothing is decoded yet.

        Raises:
            ModelError: a file cannot be read any longer, or its tensors contradict its metadata.
        """
        # Imported here so that looking at a checkpoint does not load numpy.
        if self.format == "gguf":
            from cutaway.weights.gguf import open_gguf

            return open_gguf(self.files, self.metadata)
        from cutaway.weights.safetensors import open_safetensors

        return open_safetensors(self.files, self.architecture)


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a GGUF file (any part, if it was split) or a Hugging Face style folder.

    Raises:
        UnknownModel: there is nothing at ``path``, or no model in the folder.
        ModelError: a file cannot be read.
        CorruptFile: a file is missing, cut, malformed or contradicts another one.
        UnsupportedModel: the format, its version or the type of a tensor is not known.
    """
    try:
        status = os.stat(path)
    except FileNotFoundError:
        raise UnknownModel(f"{path}: there is no such file or folder", hint="check the path of the model") from None
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    if stat.S_ISDIR(status.st_mode):
        return _open_folder(path)
    if path.suffix == ".safetensors":
        raise UnknownModel(
            f"{path}: a safetensors file alone is no model", hint=f"give the folder with its {CONFIG_FILE}"
        )
    if path.suffix in _PICKLES:
        raise UnsupportedModel(
            f"{path}: {path.suffix} files are Python pickles, which can run code when they are opened",
            hint="use a checkpoint in safetensors or GGUF format",
        )
    return _open_gguf(path)


def _open_gguf(path: Path) -> Checkpoint:
    parts = read_gguf_model(path)
    metadata = parts[0].metadata
    files = tuple(part.file for part in parts)
    return Checkpoint(
        path=path,
        format="gguf",
        architecture=metadata.text("general.architecture"),
        metadata=metadata,
        files=files,
        fingerprint=_fingerprint(files, b""),
        num_bytes=sum(file.num_bytes for file in files),
        quantization=describe_storage(files),
    )


def _open_folder(folder: Path) -> Checkpoint:
    config_path = folder / CONFIG_FILE
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise unreadable(folder, error) from None
    if CONFIG_FILE not in names:
        ggufs = [name for name in names if name.endswith(".gguf")]
        hint = f"name the file: {folder / ggufs[0]}" if ggufs else "give the folder that holds the model's files"
        raise UnknownModel(f"{folder}: there is no {CONFIG_FILE} in the folder", hint=hint)
    config, config_bytes = read_json(config_path)
    metadata = Metadata(config_path, flatten(config_path, config))
    _refuse_quantized(metadata)
    files = read_safetensors_folder(folder)
    return Checkpoint(
        path=folder,
        format="safetensors",
        architecture=metadata.text("model_type"),
        metadata=metadata,
        files=files,
        fingerprint=_fingerprint(files, config_bytes),
        num_bytes=sum(file.num_bytes for file in files),
        quantization=describe_storage(files),
    )


def _refuse_quantized(metadata: Metadata) -> None:
    if "quantization_config" in metadata:
        method = metadata.text("quantization_config.quant_method", default="unnamed")
        raise UnsupportedModel(
            f"{metadata.path}: the weights are quantized by method {method!r}, which is not supported in safetensors",
            hint="use a GGUF file of the model, or its checkpoint in BF16",
        )


def _fingerprint(files: Iterable[TensorFile], config: bytes) -> str:
    digest = hashlib.sha256(hashlib.sha256(config).digest())
    for file in files:
        digest.update(bytes.fromhex(file.header_sha256) + file.num_bytes.to_bytes(8, "little"))
    return digest.hexdigest()


def describe_storage(files: Iterable[TensorFile]) -> str:
    """The stored types of the matrices, most weights first; types of less than one weight in a hundred are left out."""
    num_weights: Counter[str] = Counter()
    for file in files:
        for tensor in file.tensors:
            if len(tensor.shape) > 1:
                num_weights[tensor.storage] += prod(tensor.shape)
    total = num_weights.total()
    return " + ".join(name for name, count in num_weights.most_common() if count >= _MIN_SHARE * total) or "no weights"
