"""Building a decoder from its config and a checkpoint, as far as architectures agree."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from cutaway.errors import UnsupportedModel
from cutaway.kernels import reference as kernels
from cutaway.layers.attention import SelfAttention
from cutaway.layers.linear import Embedding, Linear, RMSNorm, load_matrix, load_norm, load_vector
from cutaway.layers.mlp import GatedMLP
from cutaway.layers.rotary import Rotary, inverse_frequencies
from cutaway.models.config import ModelConfig
from cutaway.models.decoder import Decoder
from cutaway.weights.source import WeightSource

# Old checkpoints store the rotary frequencies, which follow from the config.
_RECOMPUTED = ".rotary_emb.inv_freq"
_MAX_NAMED = 3

_ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {"silu": kernels.silu_mul, "gelu": kernels.gelu_mul}


def build_decoder(
    config: ModelConfig,
    weights: WeightSource,
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
    divisors = load_rope_divisors(config, weights)
    refuse_unread(config, weights)
    return Decoder(
        config,
        Embedding(table, config.embedding_scale),
        [Rotary(inverse_frequencies(rope, config.head_dim, divisors)) for rope in config.ropes],
        layers,
        norm,
        Linear(head),
    )


def load_attention(
    config: ModelConfig,
    weights: WeightSource,
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
    weights: WeightSource,
    dtype: torch.dtype,
    layer: int,
) -> GatedMLP:
    """Read the feed-forward network of one layer; raises as ``build_decoder``."""
    prefix = f"model.layers.{layer}.mlp"
    names = [f"{prefix}.gate_proj.weight", f"{prefix}.up_proj.weight"]
    gate_up = load_matrix(weights, names, [config.intermediate_size] * 2, config.hidden_size, dtype)
    down = load_matrix(weights, [f"{prefix}.down_proj.weight"], [config.hidden_size], config.intermediate_size, dtype)
    return GatedMLP(Linear(gate_up), Linear(down), _ACTIVATIONS[config.activation])


def load_rope_divisors(config: ModelConfig, weights: WeightSource) -> Tensor | None:
    """Llama 3's stretching of the rotary frequencies as GGUF files carry it, [head_dim / 2], if this one does."""
    name = "rope_freqs.weight"
    if config.architecture != "llama" or name not in weights:
        return None
    return load_vector(weights, [name], [config.head_dim // 2], torch.float32)


def load_layer_norm(config: ModelConfig, weights: WeightSource, layer: int, name: str) -> RMSNorm:
    """Read one of the norms of a layer over the residual stream; raises as ``build_decoder``."""
    return load_norm(weights, f"model.layers.{layer}.{name}.weight", config.hidden_size, config.norm_eps)


def load_head_norm(config: ModelConfig, weights: WeightSource, layer: int, name: str) -> RMSNorm:
    """Read one of the norms of a layer over single heads; raises as ``build_decoder``."""
    return load_norm(weights, f"model.layers.{layer}.self_attn.{name}.weight", config.head_dim, config.norm_eps)


def refuse_unread(config: ModelConfig, weights: WeightSource) -> None:
    """A tensor that is not read is a part of the model that would be left out of the computation."""
    names = [name for name in weights.unread() if not name.endswith(_RECOMPUTED)]
    if names:
        others = f" and {len(names) - _MAX_NAMED:,} more" if len(names) > _MAX_NAMED else ""
        raise UnsupportedModel(
            f"the checkpoint has tensors that this architecture ({config.architecture}, {len(config.layers)} layers) "
            f"does not use: {', '.join(map(repr, names[:_MAX_NAMED]))}{others}",
            hint="the weights and the configuration of the model do not belong together, or it is a variant "
            "of the architecture that is not supported",
        )
