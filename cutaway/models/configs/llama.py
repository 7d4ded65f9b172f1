"""The numbers of Llama and its likes: Llama 2 and 3, SmolLM, Mistral (a window in every layer)."""

from dataclasses import replace

from cutaway.models.config import ModelConfig
from cutaway.models.reading import MAX_POSITIONS, hf_layers, read_gguf, read_hf, require
from cutaway.weights.metadata import Metadata
from cutaway.weights.source import WeightSource


def config_from_gguf(metadata: Metadata, weights: WeightSource) -> ModelConfig:
    """Read the numbers of a GGUF file."""
    config = read_gguf(metadata, weights, "llama")
    key = "llama.attention.sliding_window"
    window = metadata.integer(key, minimum=1, maximum=MAX_POSITIONS) if key in metadata else None
    return replace(config, layers=tuple(replace(layer, window=window) for layer in config.layers))


def config_from_hf(metadata: Metadata, weights: WeightSource) -> ModelConfig:
    """Read the numbers of a ``config.json``."""
    require(metadata, "hidden_act", "silu")
    require(metadata, "attention_bias", False)
    require(metadata, "mlp_bias", False)
    config = read_hf(metadata, weights, "llama")
    key = "sliding_window"
    window = metadata.integer(key, minimum=1, maximum=MAX_POSITIONS) if key in metadata else None
    return replace(config, layers=hf_layers(metadata, len(config.layers), window))
