"""Gemma 3 (text): windows in five of six layers, two rotary bases, norms before and after each half of a layer.

Source: Gemma Team, "Gemma 3 Technical Report", 2025, section 2.
"""

import torch
from torch import Tensor, nn

from cutaway.layers.attention import SelfAttention
from cutaway.layers.batch import LayerCache, LayerContext
from cutaway.layers.linear import RMSNorm
from cutaway.layers.mlp import GatedMLP
from cutaway.models.build import build_decoder, load_attention, load_head_norm, load_layer_norm, load_mlp
from cutaway.models.config import ModelConfig
from cutaway.models.decoder import Decoder
from cutaway.weights.decoded import DecodedWeights


def build(config: ModelConfig, weights: DecodedWeights, dtype: torch.dtype) -> Decoder:
    """Read the weights."""
    layers = [
        SandwichNormLayer(
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
            load_layer_norm(config, weights, layer, "pre_feedforward_layernorm"),
            load_mlp(config, weights, dtype, layer),
            load_layer_norm(config, weights, layer, "post_feedforward_layernorm"),
        )
        for layer in range(len(config.layers))
    ]
    return build_decoder(config, weights, dtype, layers)


class SandwichNormLayer(nn.Module):
    """Attention and feed-forward network, each between two norms and added to the residual stream."""

    def __init__(
        self,
        attention_norm: RMSNorm,
        attention: SelfAttention,
        attention_post_norm: RMSNorm,
        mlp_norm: RMSNorm,
        mlp: GatedMLP,
        mlp_post_norm: RMSNorm,
    ) -> None:
        super().__init__()
        self.attention_norm = attention_norm
        self.attention = attention
        self.attention_post_norm = attention_post_norm
        self.mlp_norm = mlp_norm
        self.mlp = mlp
        self.mlp_post_norm = mlp_post_norm

    def forward(self, x: Tensor, context: LayerContext, cache: LayerCache) -> Tensor:
        """[rows, hidden] to the same shape."""
        attended: Tensor = x + self.attention_post_norm(self.attention(self.attention_norm(x), context, cache))
        mixed: Tensor = attended + self.mlp_post_norm(self.mlp(self.mlp_norm(attended)))
        return mixed
