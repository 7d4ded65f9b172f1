"""Which architecture is implemented where: one line each."""

import importlib
from collections.abc import Mapping
from typing import Protocol, cast

from cutaway.errors import UnsupportedModel
from cutaway.models.config import ModelConfig
from cutaway.weights.checkpoint import Checkpoint
from cutaway.weights.metadata import Metadata
from cutaway.weights.source import WeightSource

# By the name in the files, the module of ``cutaway.models.configs`` that reads its numbers, and the one of
# ``cutaway.models`` that builds it with the reference kernels.
ARCHITECTURES: Mapping[str, str] = {
    "gemma3": "gemma3",
    "gemma3_text": "gemma3",
    "llama": "llama",
    "mistral": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
}


class ConfigReader(Protocol):
    """What a module of ``cutaway.models.configs`` defines."""

    def config_from_gguf(self, metadata: Metadata, weights: WeightSource) -> ModelConfig:
        """Read the numbers of a GGUF file."""
        ...

    def config_from_hf(self, metadata: Metadata, weights: WeightSource) -> ModelConfig:
        """Read the numbers of a ``config.json``."""
        ...


def read_config(checkpoint: Checkpoint, weights: WeightSource) -> ModelConfig:
    """The numbers of a checkpoint.

    Raises:
        UnsupportedModel: its architecture is not implemented, or it asks for what that does not do.
        ModelError: the files are at fault; see ``read_gguf`` and ``read_hf``.
    """
    if checkpoint.architecture not in ARCHITECTURES:
        raise UnsupportedModel(
            f"{checkpoint.path}: architecture {checkpoint.architecture!r} is not supported",
            hint=f"supported are {', '.join(sorted(ARCHITECTURES))}",
        )
    name = f"cutaway.models.configs.{ARCHITECTURES[checkpoint.architecture]}"
    reader = cast("ConfigReader", importlib.import_module(name))
    read = reader.config_from_gguf if checkpoint.format == "gguf" else reader.config_from_hf
    return read(checkpoint.metadata, weights)
