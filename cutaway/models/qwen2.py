"""Qwen2 and Qwen2.5: Llama's layers with biases on queries, keys and values.

Source: Yang et al., "Qwen2 Technical Report", 2024, section 2.2.
"""

import torch
from torch import Tensor

from cutaway.layers.block import PreNormLayer
from cutaway.layers.linear import load_vector
from cutaway.models.build import build_decoder, load_attention, load_layer_norm, load_mlp
from cutaway.models.config import ModelConfig
from cutaway.models.decoder import Decoder
from cutaway.weights.decoded import DecodedWeights


def build(config: ModelConfig, weights: DecodedWeights, dtype: torch.dtype) -> Decoder:
    """Read the weights."""

    def bias(layer: int) -> Tensor:
        names = [f"model.layers.{layer}.self_attn.{part}_proj.bias" for part in "qkv"]
        return load_vector(weights, names, [config.query_size, config.kv_size, config.kv_size], dtype)

    layers = [
        PreNormLayer(
            load_layer_norm(config, weights, layer, "input_layernorm"),
            load_attention(config, weights, dtype, layer, qkv_bias=bias(layer)),
            load_layer_norm(config, weights, layer, "post_attention_layernorm"),
            load_mlp(config, weights, dtype, layer),
        )
        for layer in range(len(config.layers))
    ]
    return build_decoder(config, weights, dtype, layers)
