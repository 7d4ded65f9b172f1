"""From a checkpoint to a ``ModelConfig`` and what it asks for beyond the layers, as far as architectures agree.

An architecture starts from ``read_gguf`` or ``read_hf`` and replaces what it does differently. What a checkpoint
asks for and Cutaway does not know is refused here or there, never ignored.
"""

from collections.abc import Mapping

from cutaway.errors import CorruptFile, UnsupportedModel, WrongShape
from cutaway.models.config import LayerConfig, ModelConfig
from cutaway.models.rope import Frequencies, Power, RopeConfig, RopeScaling, exact_power, inverse_frequencies
from cutaway.weights.metadata import Metadata
from cutaway.weights.source import WeightSource

MAX_LAYERS = 1_000
MAX_WIDTH = 1 << 20
MAX_POSITIONS = 1 << 30

# Old checkpoints store the rotary frequencies, which follow from the config.
_RECOMPUTED = ".rotary_emb.inv_freq"
_MAX_NAMED = 3

# Settings that change what a model computes and that no architecture here knows, with the value that changes nothing;
# None where every value changes something.
_GGUF_NEUTRAL: Mapping[str, float | None] = {
    "attention.clamp_kqv": None,
    "attention.max_alibi_bias": 0.0,
    "attention.scale": None,
    "attention.temperature_scale": None,
    "attn_logit_softcapping": None,
    "embedding_scale": 1.0,
    "expert_count": 0.0,
    "final_logit_softcapping": None,
    "logit_scale": 1.0,
    "residual_scale": 1.0,
    "rope.scale_linear": 1.0,
    "rope.scaling.attn_factor": 1.0,
}
_HF_NEUTRAL: Mapping[str, float | None] = {
    "attention_multiplier": None,
    "attn_logit_softcapping": None,
    "clip_qkv": None,
    "embedding_multiplier": 1.0,
    "final_logit_softcapping": None,
    "logit_scale": 1.0,
    "logits_scaling": 1.0,
    "n_routed_experts": 0.0,
    "num_experts": 0.0,
    "num_local_experts": 0.0,
    "partial_rotary_factor": 1.0,
    "residual_multiplier": 1.0,
}


def read_gguf(metadata: Metadata, weights: WeightSource, architecture: str) -> ModelConfig:
    """Read the keys that every decoder architecture has in a GGUF file.

    Raises:
        CorruptFile: a key is missing or its value is impossible.
        MissingTensor, WrongShape: there is no embedding, or not of the size that the keys say.
        UnsupportedModel: a setting that Cutaway does not know.
    """
    require(metadata, f"{architecture}.attention.causal", True)
    for key, neutral in _GGUF_NEUTRAL.items():
        _require_neutral(metadata, f"{architecture}.{key}", neutral)

    def width(key: str, default: int | None = None) -> int:
        return metadata.integer(f"{architecture}.{key}", minimum=1, maximum=MAX_WIDTH, default=default)

    hidden_size = width("embedding_length")
    num_heads = width("attention.head_count")
    num_layers = metadata.integer(f"{architecture}.block_count", minimum=1, maximum=MAX_LAYERS)
    head_dim = width("attention.key_length", hidden_size // num_heads)
    if width("attention.value_length", head_dim) != head_dim:
        raise UnsupportedModel(f"{metadata.path}: keys and values of different width are not supported")
    _require_neutral(metadata, f"{architecture}.rope.dimension_count", head_dim)
    config = ModelConfig(
        architecture=architecture,
        vocab_size=_vocab_size(metadata, weights, f"{architecture}.vocab_size", hidden_size),
        hidden_size=hidden_size,
        intermediate_size=width("feed_forward_length"),
        num_heads=num_heads,
        num_kv_heads=width("attention.head_count_kv", num_heads),
        head_dim=head_dim,
        norm_eps=metadata.number(f"{architecture}.attention.layer_norm_rms_epsilon", minimum=0.0, maximum=1.0),
        attention_scale=head_dim**-0.5,
        context_length=metadata.integer(f"{architecture}.context_length", minimum=1, maximum=MAX_POSITIONS),
        ropes=(_gguf_rope(metadata, architecture),),
        layers=(LayerConfig(),) * num_layers,
        tied="lm_head.weight" not in weights,
    )
    _check(config, metadata)
    return config


def read_hf(metadata: Metadata, weights: WeightSource, architecture: str) -> ModelConfig:
    """Read the keys that every decoder architecture has in a Hugging Face ``config.json``; raises as ``read_gguf``."""
    for key, neutral in _HF_NEUTRAL.items():
        _require_neutral(metadata, key, neutral)

    def width(key: str, default: int | None = None) -> int:
        return metadata.integer(key, minimum=1, maximum=MAX_WIDTH, default=default)

    hidden_size = width("hidden_size")
    num_heads = width("num_attention_heads")
    num_layers = metadata.integer("num_hidden_layers", minimum=1, maximum=MAX_LAYERS)
    head_dim = width("head_dim", hidden_size // num_heads)
    config = ModelConfig(
        architecture=architecture,
        vocab_size=_vocab_size(metadata, weights, "vocab_size", hidden_size),
        hidden_size=hidden_size,
        intermediate_size=width("intermediate_size"),
        num_heads=num_heads,
        num_kv_heads=width("num_key_value_heads", num_heads),
        head_dim=head_dim,
        norm_eps=metadata.number("rms_norm_eps", minimum=0.0, maximum=1.0, default=1e-6),
        attention_scale=head_dim**-0.5,
        context_length=metadata.integer("max_position_embeddings", minimum=1, maximum=MAX_POSITIONS),
        ropes=(hf_rope(metadata, ("rope_parameters", "rope_scaling"), "rope_theta", 10_000.0),),
        layers=(LayerConfig(),) * num_layers,
        tied=hf_tied(metadata, weights, default=False),
    )
    _check(config, metadata)
    return config


def hf_tied(metadata: Metadata, weights: WeightSource, *, default: bool) -> bool:
    """Whether the head is the embedding; ``default`` is what an absent ``tie_word_embeddings`` means.

    As in transformers, a head that the checkpoint has is used whatever the key says. One that is neither there nor
    declared as tied is found missing when the weights are read.
    """
    return metadata.flag("tie_word_embeddings", default=default) and "lm_head.weight" not in weights


def hf_rope(metadata: Metadata, sections: tuple[str, ...], theta_key: str, theta: float) -> RopeConfig:
    """Read rotary settings from the first of ``sections`` that is there; older files keep theta outside of them."""
    kinds = {name: _rope_kind(metadata, name) for name in sections if name in metadata}
    if len(set(kinds.values())) > 1:
        raise CorruptFile(f"{metadata.path}: {' and '.join(kinds)} contradict each other: {', '.join(kinds.values())}")
    section, kind = next(iter(kinds.items()), (sections[0], "default"))
    theta = metadata.number(theta_key, default=theta, minimum=1.0)
    theta = metadata.number(f"{section}.rope_theta", default=theta, minimum=1.0)
    _require_neutral(metadata, f"{section}.partial_rotary_factor", 1.0)
    if kind == "default":
        return RopeConfig(theta)
    factor = metadata.number(f"{section}.factor", minimum=1e-3)
    if kind == "linear":
        return RopeConfig(theta, linear_factor=factor)
    if kind == "llama3":
        low = metadata.number(f"{section}.low_freq_factor", minimum=1e-3)
        high = metadata.number(f"{section}.high_freq_factor", minimum=1e-3)
        if high <= low:
            raise CorruptFile(f"{metadata.path}: {section}.high_freq_factor {high} must exceed low_freq_factor {low}")
        original = metadata.integer(f"{section}.original_max_position_embeddings", minimum=1, maximum=MAX_POSITIONS)
        return RopeConfig(theta, llama3=RopeScaling(factor, low, high, original))
    raise UnsupportedModel(
        f"{metadata.path}: rotary scaling of type {kind!r} is not supported; default, linear and llama3 are"
    )


def hf_layers(metadata: Metadata, num_layers: int, window: int | None) -> tuple[LayerConfig, ...]:
    """Read which layers see a window only; without ``layer_types`` all do, if there is a window."""
    if "layer_types" not in metadata:
        return (LayerConfig(window),) * num_layers
    kinds = metadata.strings("layer_types")
    if len(kinds) != num_layers:
        raise CorruptFile(f"{metadata.path}: layer_types has {len(kinds)} entries for {num_layers} layers")
    layers = []
    for kind in kinds:
        if kind not in ("full_attention", "sliding_attention"):
            raise UnsupportedModel(f"{metadata.path}: layers of type {kind!r} are not supported")
        if kind == "sliding_attention" and window is None:
            raise CorruptFile(f"{metadata.path}: layer_types has {kind!r}, but there is no sliding_window")
        layers.append(LayerConfig(window if kind == "sliding_attention" else None))
    return tuple(layers)


def require(metadata: Metadata, key: str, value: str | bool) -> None:
    """Refuse a model whose ``config.json`` sets ``key`` to something else than ``value``.

    Raises:
        UnsupportedModel: it does; an absent key is fine.
    """
    found = metadata.flag(key, default=value) if isinstance(value, bool) else metadata.text(key, default=value)
    if found != value:
        raise UnsupportedModel(f"{metadata.path}: {key} {found!r} is not supported, only {value!r}")


def rope_frequencies(config: ModelConfig, weights: WeightSource, power: Power = exact_power) -> list[Frequencies]:
    """The rotary frequencies of each entry of ``config.ropes``, with the divisors that GGUF files of Llama 3 carry."""
    divisors, name = None, "rope_freqs.weight"
    if config.architecture == "llama" and name in weights:
        divisors = weights.read_vector(name, (config.head_dim // 2,))
    return [inverse_frequencies(rope, config.head_dim, divisors, power) for rope in config.ropes]


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


def _rope_kind(metadata: Metadata, section: str) -> str:
    """The type that a section with rotary settings names."""
    if not any(key.startswith(f"{section}.") for key in metadata):
        raise CorruptFile(f"{metadata.path}: {section} must be an object with settings")
    kind = metadata.text(f"{section}.type", default="default")
    named = metadata.text(f"{section}.rope_type", default=kind)
    if f"{section}.type" in metadata and named != kind:
        raise CorruptFile(f"{metadata.path}: {section}.rope_type {named!r} contradicts {section}.type {kind!r}")
    return named


def _gguf_rope(metadata: Metadata, architecture: str) -> RopeConfig:
    theta = metadata.number(f"{architecture}.rope.freq_base", default=10_000.0, minimum=1.0)
    factor_key = f"{architecture}.rope.scaling.factor"
    # A factor without a type is linear, as in llama.cpp.
    kind = metadata.text(f"{architecture}.rope.scaling.type", default="linear" if factor_key in metadata else "none")
    if kind == "none":
        return RopeConfig(theta)
    if kind == "linear":
        factor = metadata.number(factor_key, minimum=1e-3)
        return RopeConfig(theta, linear_factor=factor)
    raise UnsupportedModel(f"{metadata.path}: rotary scaling of type {kind!r} is not supported; none and linear are")


def _require_neutral(metadata: Metadata, key: str, neutral: float | None) -> None:
    """Refuse ``key`` unless it is absent or has the ``neutral`` value, if there is one."""
    if key not in metadata:
        return
    value = metadata.number(key)
    if neutral is None:
        raise UnsupportedModel(f"{metadata.path}: {key} is not supported, but is {value:g}")
    if value != neutral:
        raise UnsupportedModel(f"{metadata.path}: {key} {value:g} is not supported, only {neutral:g}")


def _vocab_size(metadata: Metadata, weights: WeightSource, key: str, hidden_size: int) -> int:
    """Rows of the embedding: as many as ``key`` says, or more, when it is padded."""
    name = "model.embed_tokens.weight"
    shape = weights.shape(name)
    minimum = metadata.integer(key, minimum=1, default=1)
    if len(shape) != 2 or shape[0] < minimum or shape[1] != hidden_size:
        raise WrongShape(
            f"{metadata.path}: tensor {name!r} has shape {list(shape)}, "
            f"but [vocab, hidden] = [{minimum} or more, {hidden_size}] is needed",
            hint="the weights and the configuration of the model do not belong together",
        )
    return shape[0]


def _check(config: ModelConfig, metadata: Metadata) -> None:
    if config.num_heads % config.num_kv_heads:
        raise CorruptFile(
            f"{metadata.path}: {config.num_heads} query heads cannot share {config.num_kv_heads} key-value heads evenly"
        )
    if config.head_dim % 2:
        raise CorruptFile(f"{metadata.path}: a head of {config.head_dim} channels cannot be rotated in pairs")
