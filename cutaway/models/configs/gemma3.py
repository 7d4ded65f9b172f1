"""The numbers of Gemma 3 (text).

Source: Gemma Team, "Gemma 3 Technical Report", 2025, section 2, and transformers' ``gemma3`` for the constants.
"""

from dataclasses import replace

from cutaway.models.config import LayerConfig, ModelConfig
from cutaway.models.reading import MAX_POSITIONS, hf_layers, hf_rope, hf_tied, read_gguf, read_hf, require
from cutaway.models.rope import RopeConfig
from cutaway.weights.metadata import Metadata
from cutaway.weights.source import WeightSource

# One layer in six sees everything. Most GGUF files state neither this pattern nor the windows' rotary base.
GLOBAL_EVERY = 6
LOCAL_THETA = 10_000.0
GLOBAL_THETA = 1_000_000.0

# The 27B model, alone, scales by the width of hidden / heads instead of a head's width. GGUF files do not say so;
# the number of layers tells the model.
NUM_LAYERS_27B = 62


def config_from_gguf(metadata: Metadata, weights: WeightSource) -> ModelConfig:
    """Read the numbers of a GGUF file."""
    config = read_gguf(metadata, weights, "gemma3")
    window = metadata.integer("gemma3.attention.sliding_window", minimum=1, maximum=MAX_POSITIONS)
    every = metadata.integer("gemma3.attention.sliding_window_pattern", minimum=1, default=GLOBAL_EVERY)
    local_theta = metadata.number("gemma3.rope.freq_base_swa", minimum=1.0, default=LOCAL_THETA)
    scale = config.attention_scale
    if len(config.layers) == NUM_LAYERS_27B:
        scale = (config.hidden_size / config.num_heads) ** -0.5
    return replace(
        config,
        activation="gelu",
        embedding_scale=config.hidden_size**0.5,
        attention_scale=scale,
        ropes=(config.ropes[0], RopeConfig(local_theta)),
        layers=_pattern(len(config.layers), window, every),
    )


def config_from_hf(metadata: Metadata, weights: WeightSource) -> ModelConfig:
    """Read the numbers of a ``config.json``."""
    require(metadata, "model_type", "gemma3_text")  # "gemma3" wraps the text model in one that also sees images
    require(metadata, "hidden_activation", "gelu_pytorch_tanh")
    require(metadata, "attention_bias", False)
    require(metadata, "use_bidirectional_attention", False)
    config = read_hf(metadata, weights, "gemma3")
    window = metadata.integer("sliding_window", minimum=1, maximum=MAX_POSITIONS)
    num_layers = len(config.layers)
    every = metadata.integer("sliding_window_pattern", minimum=1, default=GLOBAL_EVERY)
    layers = _pattern(num_layers, window, every)
    if "layer_types" in metadata:
        layers = tuple(
            replace(layer, rope=int(layer.window is not None)) for layer in hf_layers(metadata, num_layers, window)
        )
    scalar = metadata.number("query_pre_attn_scalar", default=256.0, minimum=1e-3)
    return replace(
        config,
        activation="gelu",
        embedding_scale=config.hidden_size**0.5,
        attention_scale=scalar**-0.5,
        ropes=(
            hf_rope(metadata, ("rope_parameters.full_attention", "rope_scaling"), "rope_theta", GLOBAL_THETA),
            hf_rope(metadata, ("rope_parameters.sliding_attention",), "rope_local_base_freq", LOCAL_THETA),
        ),
        layers=layers,
        tied=hf_tied(metadata, weights, default=True),
    )


def _pattern(num_layers: int, window: int, global_every: int) -> tuple[LayerConfig, ...]:
    """The last of every ``global_every`` layers sees everything, with the first rotary base; the others a window."""
    return tuple(
        LayerConfig(None, rope=0) if (layer + 1) % global_every == 0 else LayerConfig(window, rope=1)
        for layer in range(num_layers)
    )
