"""Qwen3: Llama's layers with a norm over each query and key head, and no biases.

Source: Yang et al., "Qwen3 Technical Report", 2025, section 2.
"""

import torch

from cutaway.layers.block import PreNormLayer
from cutaway.models.build import build_decoder, load_attention, load_head_norm, load_layer_norm, load_mlp
from cutaway.models.config import ModelConfig
from cutaway.models.decoder import Decoder
from cutaway.weights.decoded import DecodedWeights


def build(config: ModelConfig, weights: DecodedWeights, dtype: torch.dtype) -> Decoder:
    """Read the weights."""
    layers = [
        PreNormLayer(
            load_layer_norm(config, weights, layer, "input_layernorm"),
            load_attention(
                config,
                weights,
                dtype,
                layer,
                query_norm=load_head_norm(config, weights, layer, "q_norm"),
                key_norm=load_head_norm(config, weights, layer, "k_norm"),
            ),
            load_layer_norm(config, weights, layer, "post_attention_layernorm"),
            load_mlp(config, weights, dtype, layer),
        )
        for layer in range(len(config.layers))
    ]
    return build_decoder(config, weights, dtype, layers)
