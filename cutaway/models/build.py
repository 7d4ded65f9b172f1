"""Building a decoder from its config and a checkpoint, as far as architectures agree."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from cutaway.kernels import reference as kernels
from cutaway.layers.attention import SelfAttention
from cutaway.layers.linear import Embedding, Linear, RMSNorm, load_matrix, load_norm
from cutaway.layers.mlp import GatedMLP
from cutaway.layers.rotary import Rotary
from cutaway.models.config import ModelConfig
from cutaway.models.decoder import Decoder
from cutaway.models.reading import refuse_unread, rope_frequencies
from cutaway.models.registry import ARCHITECTURES, read_config
from cutaway.models.rope import Frequencies
from cutaway.weights.checkpoint import Checkpoint
from cutaway.weights.decoded import DecodedWeights
from cutaway.weights.source import WeightSource

_ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {"silu": kernels.silu_mul, "gelu": kernels.gelu_mul}


class Architecture(Protocol):
    """What a module of this package that builds an architecture defines."""

    def build(self, config: ModelConfig, weights: DecodedWeights, dtype: torch.dtype) -> Decoder:
        """Read the weights; raises as ``build_decoder``."""
        ...


def load_decoder(checkpoint: Checkpoint, dtype: torch.dtype) -> Decoder:
    """Read the config and the weights of a checkpoint; matrices are of ``dtype``.

    Raises:
        ModelError: the files are at fault, or ask for what is not supported.
    """
    weights = checkpoint.weights()
    try:
        return read_decoder(read_config(checkpoint, weights), weights, dtype)
    finally:
        weights.close()


def read_decoder(config: ModelConfig, weights: WeightSource, dtype: torch.dtype) -> Decoder:
    """Read the weights of a decoder, as its architecture builds it; raises as ``build_decoder``."""
    architecture = cast("Architecture", importlib.import_module(f"cutaway.models.{ARCHITECTURES[config.architecture]}"))
    with DecodedWeights(weights) as decoded:
        return architecture.build(config, decoded, dtype)


def build_decoder(
    config: ModelConfig,
    weights: DecodedWeights,
    dtype: torch.dtype,
    layers: Sequence[nn.Module],
) -> Decoder:
    """Put embedding, norm and head around ``layers``, which have read their weights already.

    Args:
        config: the numbers.
        weights: the checkpoint.
        dtype: of the matrices.
        layers: first to last.

    Raises:
        MissingTensor, WrongShape: the checkpoint does not fit the config.
        UnsupportedModel: the checkpoint has tensors that nobody has read; names some.
    """
    table = load_matrix(weights, ["model.embed_tokens.weight"], [config.vocab_size], config.hidden_size, dtype)
    head = table
    if not config.tied:
        head = load_matrix(weights, ["lm_head.weight"], [config.vocab_size], config.hidden_size, dtype)
    norm = load_norm(weights, "model.norm.weight", config.hidden_size, config.norm_eps)
    frequencies = rope_frequencies(config, weights.stored, _torch_power)
    refuse_unread(config, weights.stored)
    return Decoder(
        config,
        Embedding(table, config.embedding_scale),
        [Rotary(torch.from_numpy(each)) for each in frequencies],
        layers,
        norm,
        Linear(head),
    )


def load_attention(
    config: ModelConfig,
    weights: DecodedWeights,
    dtype: torch.dtype,
    layer: int,
    *,
    qkv_bias: Tensor | None = None,
    query_norm: RMSNorm | None = None,
    key_norm: RMSNorm | None = None,
) -> SelfAttention:
    """Read the attention of one layer; raises as ``build_decoder``."""
    prefix = f"model.layers.{layer}.self_attn"
    names = [f"{prefix}.{part}_proj.weight" for part in "qkv"]
    heights = [config.query_size, config.kv_size, config.kv_size]
    qkv = load_matrix(weights, names, heights, config.hidden_size, dtype)
    output = load_matrix(weights, [f"{prefix}.o_proj.weight"], [config.hidden_size], config.query_size, dtype)
    return SelfAttention(
        Linear(qkv, qkv_bias),
        Linear(output),
        config.num_heads,
        config.num_kv_heads,
        config.head_dim,
        config.attention_scale,
        query_norm,
        key_norm,
    )


def load_mlp(
    config: ModelConfig,
    weights: DecodedWeights,
    dtype: torch.dtype,
    layer: int,
) -> GatedMLP:
    """Read the feed-forward network of one layer; raises as ``build_decoder``."""
    prefix = f"model.layers.{layer}.mlp"
    names = [f"{prefix}.gate_proj.weight", f"{prefix}.up_proj.weight"]
    gate_up = load_matrix(weights, names, [config.intermediate_size] * 2, config.hidden_size, dtype)
    down = load_matrix(weights, [f"{prefix}.down_proj.weight"], [config.hidden_size], config.intermediate_size, dtype)
    return GatedMLP(Linear(gate_up), Linear(down), _ACTIVATIONS[config.activation])


def load_layer_norm(config: ModelConfig, weights: DecodedWeights, layer: int, name: str) -> RMSNorm:
    """Read one of the norms of a layer over the residual stream; raises as ``build_decoder``."""
    return load_norm(weights, f"model.layers.{layer}.{name}.weight", config.hidden_size, config.norm_eps)


def load_head_norm(config: ModelConfig, weights: DecodedWeights, layer: int, name: str) -> RMSNorm:
    """Read one of the norms of a layer over single heads; raises as ``build_decoder``."""
    return load_norm(weights, f"model.layers.{layer}.self_attn.{name}.weight", config.head_dim, config.norm_eps)


def _torch_power(base: float, exponents: Frequencies) -> Frequencies:
    """As transformers computes it."""
    powers: Frequencies = (base ** torch.from_numpy(exponents)).numpy()
    return powers
