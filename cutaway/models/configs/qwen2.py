"""The numbers of Qwen2 and Qwen2.5."""

from dataclasses import replace

from cutaway.models.config import LayerConfig, ModelConfig
from cutaway.models.reading import MAX_POSITIONS, hf_layers, read_gguf, read_hf, require
from cutaway.weights.metadata import Metadata
from cutaway.weights.source import WeightSource


def config_from_gguf(metadata: Metadata, weights: WeightSource) -> ModelConfig:
    """Read the numbers of a GGUF file."""
    return read_gguf(metadata, weights, "qwen2")


def config_from_hf(metadata: Metadata, weights: WeightSource) -> ModelConfig:
    """Read the numbers of a ``config.json``."""
    require(metadata, "hidden_act", "silu")
    config = read_hf(metadata, weights, "qwen2")
    return replace(config, layers=qwen_layers(metadata, len(config.layers)))


def qwen_layers(metadata: Metadata, num_layers: int) -> tuple[LayerConfig, ...]:
    """Read which layers see a window: those from ``max_window_layers`` on, if windows are switched on at all."""
    if not metadata.flag("use_sliding_window", default=False):
        return (LayerConfig(),) * num_layers
    window = metadata.integer("sliding_window", minimum=1, maximum=MAX_POSITIONS)
    if "layer_types" in metadata:
        return hf_layers(metadata, num_layers, window)
    first = metadata.integer("max_window_layers", minimum=0, default=28)
    return tuple(LayerConfig(window if layer >= first else None) for layer in range(num_layers))
