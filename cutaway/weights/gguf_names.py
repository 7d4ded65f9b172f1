"""Translates the tensor names of GGUF files to those of Hugging Face checkpoints.

Owns the table and nothing else; standard library only. Invariant: a name without a translation stays as it is, so no
tensor is lost. Source: the tensor names of the ``gguf`` package, and the parameter names of transformers.
"""

import re
from collections.abc import Mapping

_TOP_LEVEL: Mapping[str, str] = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}

_BLOCK: Mapping[str, str] = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

# Gemma has norms before and after both halves of a block, so the same words mean other places.
_GEMMA_BLOCK: Mapping[str, str] = {
    **_BLOCK,
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}

_NAME = re.compile(r"(?:blk\.(?P<layer>0|[1-9]\d{0,5})\.)?(?P<part>[a-z_]+)\.(?P<kind>weight|bias)")


def canonical_name(architecture: str, name: str) -> str:
    """The Hugging Face name of the tensor ``name`` of a GGUF file; ``architecture`` is its ``general.architecture``."""
    match = _NAME.fullmatch(name)
    if match is None:
        return name
    if match["layer"] is None:
        part = _TOP_LEVEL.get(match["part"])
        return f"{part}.{match['kind']}" if part else name
    part = (_GEMMA_BLOCK if architecture == "gemma3" else _BLOCK).get(match["part"])
    return f"model.layers.{match['layer']}.{part}.{match['kind']}" if part else name
