"""A GGUF model as a Hugging Face folder in bfloat16, for peers that cannot keep it quantized: the same weights."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from cutaway.errors import UnsupportedModel
from cutaway.models.config import ModelConfig
from cutaway.models.registry import read_config
from cutaway.weights.checkpoint import open_checkpoint
from cutaway.weights.decoded import DecodedWeights


def write_hf_copy(path: Path, folder: Path) -> None:
    """Write ``config.json`` and ``model.safetensors`` of the GGUF file ``path``; there is no tokenizer.

    Raises:
        ModelError: the file is at fault.
        UnsupportedModel: it is not of architecture ``llama``.
    """
    checkpoint = open_checkpoint(path)
    weights = checkpoint.weights()
    try:
        config = describe(read_config(checkpoint, weights))
        tensors = {}
        with DecodedWeights(weights) as decoded:
            for name in weights:
                tensors[name] = torch.empty(weights.shape(name), dtype=torch.bfloat16)
                decoded.read_into(name, tensors[name])  # query and key rows come in the order of Hugging Face
    finally:
        weights.close()
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2))  # last: with it the copy is complete


def describe(config: ModelConfig) -> dict[str, object]:
    """The ``config.json`` of a model of architecture ``llama``; raises as ``write_hf_copy``."""
    rope = config.ropes[0]
    if config.architecture != "llama" or rope.llama3 is not None or rope.linear_factor != 1.0:
        raise UnsupportedModel(
            f"architecture {config.architecture!r} is not written as a Hugging Face folder", hint="llama is"
        )
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": len(config.layers),
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": rope.theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": rope.theta},
        "max_position_embeddings": config.context_length,
        "tie_word_embeddings": config.tied,
        "hidden_act": config.activation,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
    }
