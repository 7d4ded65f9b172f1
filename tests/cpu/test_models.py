"""Each architecture against transformers, with tiny random weights in float32."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
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

from cutaway.errors import UnsupportedModel
from cutaway.executor.kv import allocate_kv, kv_shape
from cutaway.kernels.reference import RowSpan
from cutaway.layers.batch import LayerCache, TokenBatch
from cutaway.models.decoder import Decoder
from cutaway.models.registry import find_architecture, read_config
from cutaway.weights.checkpoint import open_checkpoint

NUM_TOKENS = 41
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
    config = Gemma3TextConfig(**SIZES, head_dim=16, sliding_window=9, query_pre_attn_scalar=24)
    return Gemma3ForCausalLM(config)


ARCHITECTURES = [llama, llama3, llama_linear_rope, mistral, qwen2, qwen2_with_window, qwen3, gemma3]


@pytest.fixture(params=ARCHITECTURES, ids=lambda make: make.__name__)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[PreTrainedModel, Decoder]:
    """The same weights in transformers and in Cutaway."""
    make: Callable[[], PreTrainedModel] = request.param
    torch.manual_seed(7)
    theirs = make().eval()
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            # The default initialization leaves biases and norms at constants that would hide a mistake.
            scale = 0.3 if "norm" in name or "bias" in name else 0.2
            parameter.add_(torch.randn_like(parameter) * scale)
    theirs.save_pretrained(tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    weights = checkpoint.weights()
    config = read_config(checkpoint, weights)
    return theirs, find_architecture(checkpoint).build(config, weights, torch.float32)


def caches_for(model: Decoder, num_slots: int) -> tuple[LayerCache, ...]:
    return allocate_kv(kv_shape(model.config, torch.float32), num_slots)


def rows_of(token_ids: torch.Tensor, start: int, end: int, slots: torch.Tensor) -> TokenBatch:
    """A batch of the positions ``start`` to ``end`` of one request."""
    positions = torch.arange(start, end)
    return TokenBatch(token_ids[start:end], positions, slots[start:end], (RowSpan(0, end - start, start, slots[:end]),))


@torch.inference_mode()
def test_prompt_logits_equal_those_of_transformers(pair: tuple[PreTrainedModel, Decoder]) -> None:
    theirs, ours = pair
    token_ids = torch.randint(0, SIZES["vocab_size"], (NUM_TOKENS,))
    slots = torch.randperm(64)[:NUM_TOKENS]
    logits = ours.logits(ours(rows_of(token_ids, 0, NUM_TOKENS, slots), caches_for(ours, 64)))
    expected = theirs(token_ids.unsqueeze(0)).logits[0]
    assert expected.std() > 0.1
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)


@torch.inference_mode()
@pytest.mark.parametrize("sizes", [[1] * NUM_TOKENS, [16, 16, 9], [30, 1, 1, 9], [3, 37, 1]], ids=str)
def test_reading_in_pieces_gives_the_same_bits(pair: tuple[PreTrainedModel, Decoder], sizes: list[int]) -> None:
    _, ours = pair
    token_ids = torch.randint(0, SIZES["vocab_size"], (NUM_TOKENS,))
    slots = torch.randperm(64)[:NUM_TOKENS]
    whole = ours(rows_of(token_ids, 0, NUM_TOKENS, slots), caches_for(ours, 64))
    caches, start, pieces = caches_for(ours, 64), 0, []
    for size in sizes:
        pieces.append(ours(rows_of(token_ids, start, start + size, slots), caches))
        start += size
    assert torch.equal(torch.cat(pieces), whole)


REFUSED = [
    (llama, {"hidden_act": "gelu"}, "hidden_act 'gelu'"),
    (llama, {"attention_bias": True}, "attention_bias True"),
    (llama, {"mlp_bias": True}, "mlp_bias True"),
    (llama, {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, "'yarn'"),
    (mistral, {"layer_types": ["chunked_attention"] * 7}, "'chunked_attention'"),
    (qwen2, {"hidden_act": "relu"}, "hidden_act 'relu'"),
    (qwen3, {"attention_bias": True}, "attention_bias True"),
    (gemma3, {"model_type": "gemma3"}, "model_type 'gemma3'"),
    (gemma3, {"hidden_activation": "silu"}, "hidden_activation 'silu'"),
    (gemma3, {"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
    (gemma3, {"use_bidirectional_attention": True}, "use_bidirectional_attention True"),
    (llama, {"model_type": "falcon"}, "'falcon'"),
]


@pytest.mark.parametrize(("make", "changes", "named"), REFUSED, ids=str)
def test_what_a_config_asks_for_and_we_do_not_know_is_refused(
    tmp_path: Path, make: Callable[[], PreTrainedModel], changes: dict[str, object], named: str
) -> None:
    make().save_pretrained(tmp_path)
    config_path = tmp_path / "config.json"
    config_path.write_text(json.dumps(json.loads(config_path.read_text()) | changes))
    checkpoint = open_checkpoint(tmp_path)
    with pytest.raises(UnsupportedModel, match=named):
        read_config(checkpoint, checkpoint.weights())
