"""Llama and its likes: Llama 2 and 3, SmolLM, Mistral (a window in every layer).

Source: Touvron et al., "Llama 2", 2023, section 2.2; Jiang et al., "Mistral 7B", 2023, section 2.
"""

import torch

from cutaway.layers.block import PreNormLayer
from cutaway.models.build import build_decoder, load_attention, load_layer_norm, load_mlp
from cutaway.models.config import ModelConfig
from cutaway.models.decoder import Decoder
from cutaway.weights.decoded import DecodedWeights


def build(config: ModelConfig, weights: DecodedWeights, dtype: torch.dtype) -> Decoder:
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
