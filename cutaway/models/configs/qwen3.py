"""The numbers of Qwen3."""

from dataclasses import replace

from cutaway.models.config import ModelConfig
from cutaway.models.configs.qwen2 import qwen_layers
from cutaway.models.reading import read_gguf, read_hf, require
from cutaway.weights.metadata import Metadata
from cutaway.weights.source import WeightSource


def config_from_gguf(metadata: Metadata, weights: WeightSource) -> ModelConfig:
    """Read the numbers of a GGUF file."""
    return read_gguf(metadata, weights, "qwen3")


def config_from_hf(metadata: Metadata, weights: WeightSource) -> ModelConfig:
    """Read the numbers of a ``config.json``."""
    require(metadata, "hidden_act", "silu")
    require(metadata, "attention_bias", False)
    config = read_hf(metadata, weights, "qwen3")
    return replace(config, layers=qwen_layers(metadata, len(config.layers)))
