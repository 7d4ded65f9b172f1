"""Llama and its likes: Llama 2 and 3, SmolLM, Mistral (a window in every layer).

Source: Touvron et al., "Llama 2", 2023, section 2.2; Jiang et al., "Mistral 7B", 2023, section 2.
"""

from dataclasses import replace

import torch

from cutaway.layers.block import PreNormLayer
from cutaway.models.build import build_decoder, load_attention, load_layer_norm, load_mlp
from cutaway.models.config import ModelConfig
from cutaway.models.decoder import Decoder
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


def build(config: ModelConfig, weights: WeightSource, dtype: torch.dtype) -> Decoder:
    """Read the weights."""
    layers = [
        PreNormLayer(
            load_layer_norm(config, weights, layer, "input_layernorm"),
            load_attention(config, weights, dtype, layer),
            load_layer_norm(config, weights, layer, "post_attention_layernorm"),
            load_mlp(config, weights, dtype, layer),
        )
        for layer in range(len(config.layers))
    ]
    return build_decoder(config, weights, dtype, layers)
