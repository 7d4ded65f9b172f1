"""Which architecture is implemented where: one line each."""

import importlib
from collections.abc import Mapping
from typing import Protocol, cast

import torch

from cutaway.errors import UnsupportedModel
from cutaway.models.config import ModelConfig
from cutaway.models.decoder import Decoder
from cutaway.models.native import NativeDecoder
from cutaway.weights.checkpoint import Checkpoint
from cutaway.weights.metadata import Metadata
from cutaway.weights.source import WeightSource

ARCHITECTURES: Mapping[str, str] = {
    "gemma3": "cutaway.models.gemma3",
    "gemma3_text": "cutaway.models.gemma3",
    "llama": "cutaway.models.llama",
    "mistral": "cutaway.models.llama",
    "qwen2": "cutaway.models.qwen2",
    "qwen3": "cutaway.models.qwen3",
}


class Architecture(Protocol):
    """What a module of this package defines."""

    def config_from_gguf(self, metadata: Metadata, weights: WeightSource) -> ModelConfig:
        """Read the numbers of a GGUF file."""
        ...

    def config_from_hf(self, metadata: Metadata, weights: WeightSource) -> ModelConfig:
        """Read the numbers of a ``config.json``."""
        ...

    def build(self, config: ModelConfig, weights: WeightSource, dtype: torch.dtype) -> Decoder:
        """Read the weights; raises as ``build_decoder``."""
        ...


def find_architecture(checkpoint: Checkpoint) -> Architecture:
    """The module that implements a checkpoint's architecture.

    Raises:
        UnsupportedModel: none does.
    """
    if checkpoint.architecture not in ARCHITECTURES:
        raise UnsupportedModel(
            f"{checkpoint.path}: architecture {checkpoint.architecture!r} is not supported",
            hint=f"supported are {', '.join(sorted(ARCHITECTURES))}",
        )
    return cast("Architecture", importlib.import_module(ARCHITECTURES[checkpoint.architecture]))


def load_decoder(checkpoint: Checkpoint, dtype: torch.dtype) -> Decoder:
    """Read the config and the weights of a checkpoint; matrices are of ``dtype``.

    Raises:
        ModelError: the files are at fault, or ask for what is not supported.
    """
    weights = checkpoint.weights()
    try:
        return find_architecture(checkpoint).build(read_config(checkpoint, weights), weights, dtype)
    finally:
        weights.close()


def load_native(checkpoint: Checkpoint, instruction_set: str, num_threads: int) -> NativeDecoder:
    """As ``load_decoder``, for the native kernels; see ``why_not_native``."""
    weights = checkpoint.weights()
    try:
        return NativeDecoder(read_config(checkpoint, weights), weights, instruction_set, num_threads)
    finally:
        weights.close()


def read_config(checkpoint: Checkpoint, weights: WeightSource) -> ModelConfig:
    """The numbers of a checkpoint; raises as ``find_architecture``, ``read_gguf`` and ``read_hf``."""
    architecture = find_architecture(checkpoint)
    read = architecture.config_from_gguf if checkpoint.format == "gguf" else architecture.config_from_hf
    return read(checkpoint.metadata, weights)
