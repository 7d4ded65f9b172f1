"""Tiny random models of every architecture, written to disk as a folder and as a GGUF file."""

import math
from pathlib import Path

import gguf
import numpy as np
import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

SIZES = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 7,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


def llama() -> PreTrainedModel:
    return LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=False))


def llama3() -> PreTrainedModel:
    return LlamaForCausalLM(LlamaConfig(**SIZES, rope_parameters=LLAMA3_ROPE, tie_word_embeddings=True))


def llama_linear_rope() -> PreTrainedModel:
    rope = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
    return LlamaForCausalLM(LlamaConfig(**SIZES, rope_parameters=rope))


def mistral() -> PreTrainedModel:
    return MistralForCausalLM(MistralConfig(**SIZES, head_dim=8, sliding_window=9))


def qwen2() -> PreTrainedModel:
    return Qwen2ForCausalLM(Qwen2Config(**SIZES))


def qwen2_with_window() -> PreTrainedModel:
    return Qwen2ForCausalLM(Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=9, max_window_layers=3))


def qwen3() -> PreTrainedModel:
    return Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=16))


def gemma3() -> PreTrainedModel:
    config = Gemma3TextConfig(**SIZES, head_dim=16, sliding_window=9, query_pre_attn_scalar=16)
    return Gemma3ForCausalLM(config)


def gemma3_every_third() -> PreTrainedModel:
    config = Gemma3TextConfig(
        **SIZES, head_dim=16, sliding_window=9, query_pre_attn_scalar=16, sliding_window_pattern=3
    )
    return Gemma3ForCausalLM(config)


def gemma3_with_own_scale() -> PreTrainedModel:
    config = Gemma3TextConfig(**SIZES, head_dim=16, sliding_window=9, query_pre_attn_scalar=24)
    return Gemma3ForCausalLM(config)


MODELS = [
    llama,
    llama3,
    llama_linear_rope,
    mistral,
    qwen2,
    qwen2_with_window,
    qwen3,
    gemma3,
    gemma3_every_third,
    gemma3_with_own_scale,
]
# A GGUF file has no key for Gemma's scale, nor for the windows of Qwen2.
NOT_AS_GGUF = [qwen2_with_window, gemma3_with_own_scale]


def randomize(model: PreTrainedModel) -> PreTrainedModel:
    """The same model, whose biases and norms are no longer constants that would hide a mistake."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            scale = 0.3 if "norm" in name or "bias" in name else 0.2
            parameter.add_(torch.randn_like(parameter) * scale)
    return model.eval()


def write_gguf(model: PreTrainedModel, path: Path) -> None:
    """Write what llama.cpp's converter would, in float32; names come from the ``gguf`` package."""
    config = model.config
    model_type = {"gemma3_text": "gemma3", "mistral": "llama"}.get(config.model_type, config.model_type)
    writer = gguf.GGUFWriter(path, model_type)
    _write_numbers(writer, config, model_type)
    arch = next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == model_type)
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = tensor.numpy()
        if model_type == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            values = _interleave(values, values.shape[0] // _head_dim(config))
        if model_type == "gemma3" and name.endswith("norm.weight"):
            values = values + np.float32(1)
        writer.add_tensor(names.get_name(name, (".weight", ".bias")), np.ascontiguousarray(values))
    if _rope(config)["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", _llama3_divisors(_rope(config), _head_dim(config)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_numbers(writer: gguf.GGUFWriter, config, model_type: str) -> None:
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(_rope(config)["rope_theta"])
    if model_type == "llama":
        writer.add_rope_dimension_count(_head_dim(config))
    if _head_dim(config) * config.num_attention_heads != config.hidden_size:
        writer.add_key_length(_head_dim(config))
        writer.add_value_length(_head_dim(config))
    if _rope(config)["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(_rope(config)["factor"])
    if getattr(config, "sliding_window", None):
        writer.add_sliding_window(config.sliding_window)
    if getattr(config, "_sliding_window_pattern", 6) != 6:
        writer.add_sliding_window_pattern(config._sliding_window_pattern)


def _head_dim(config) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def _rope(config) -> dict[str, object]:
    return config.rope_parameters.get("full_attention", config.rope_parameters)


def _interleave(rows: np.ndarray, num_heads: int) -> np.ndarray:
    """The permutation of llama.cpp's converter: rows that rotate together come to lie side by side."""
    halves = rows.reshape(num_heads, 2, rows.shape[0] // num_heads // 2, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def _llama3_divisors(rope: dict[str, float], head_dim: int) -> np.ndarray:
    """One pair of channels after the other, as llama.cpp's converter computes them."""
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    context = rope["original_max_position_embeddings"]
    divisors = []
    for channel in range(0, head_dim, 2):
        wavelength = 2 * math.pi * rope["rope_theta"] ** (channel / head_dim)
        if wavelength < context / high:
            divisors.append(1.0)
        elif wavelength > context / low:
            divisors.append(rope["factor"])
        else:
            smooth = (context / wavelength - low) / (high - low)
            divisors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    assert len(set(divisors)) > 2
    return np.array(divisors, dtype=np.float32)
