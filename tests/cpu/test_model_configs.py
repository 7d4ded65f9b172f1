"""Models that are not what they say, or ask for what Cutaway does not do: each is refused, and the cause is named."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import gemma3, gemma3_every_third, llama, llama3, mistral, qwen2, qwen3, write_gguf
from transformers import PreTrainedModel

from cutaway.errors import CorruptFile, MissingTensor, ModelError, UnsupportedModel, WrongShape
from cutaway.models.build import load_decoder
from cutaway.models.config import ModelConfig
from cutaway.models.configs import gemma3 as gemma3_file
from cutaway.models.registry import read_config
from cutaway.weights.checkpoint import open_checkpoint
from cutaway.weights.memory import DictSource
from cutaway.weights.metadata import Metadata

Make = Callable[[], PreTrainedModel]
Tensors = dict[str, torch.Tensor]

EMBEDDING = "model.embed_tokens.weight"
QUERY = "model.layers.1.self_attn.q_proj.weight"


def save_folder(
    folder: Path,
    make: Make,
    settings: Mapping[str, object] | None = None,
    change: Callable[[Tensors], object] = lambda tensors: None,
) -> Path:
    """A tiny model with some settings changed (``None`` takes one away), and its tensors changed by ``change``."""
    make().save_pretrained(folder)
    config_path = folder / "config.json"
    config = json.loads(config_path.read_text()) | dict(settings or {})
    config_path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def save_gguf(
    folder: Path,
    make: Make,
    settings: Mapping[str, object] | None = None,
    tensors: Mapping[str, tuple[int, ...]] | None = None,
) -> Path:
    """A tiny model with metadata and tensors of zeros added to it."""
    path = folder / "model.gguf"

    class Writer(gguf.GGUFWriter):
        def write_header_to_file(self) -> None:
            for key, value in (settings or {}).items():
                add = {int: self.add_uint32, float: self.add_float32, bool: self.add_bool, str: self.add_string}
                self.kv_data[0].pop(key, None)
                add[type(value)](key, value)
            for name, shape in (tensors or {}).items():
                self.add_tensor(name, np.zeros(shape, dtype=np.float32))
            super().write_header_to_file()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gguf, "GGUFWriter", Writer)
        write_gguf(make(), path)
    return path


def config_of(path: Path) -> ModelConfig:
    checkpoint = open_checkpoint(path)
    weights = checkpoint.weights()
    try:
        return read_config(checkpoint, weights)
    finally:
        weights.close()


def refusal(path: Path, kind: type[ModelError]) -> str:
    with pytest.raises(kind) as error:
        load_decoder(open_checkpoint(path), torch.float32)
    assert type(error.value) is kind
    return error.value.message


def _name(value: object) -> str:
    """The same in every process, so that several can divide the tests."""
    return getattr(value, "__name__", str(value))


HF_REFUSED = [
    (llama, {"hidden_act": "gelu"}, "hidden_act 'gelu'"),
    (llama, {"attention_bias": True}, "attention_bias True"),
    (llama, {"mlp_bias": True}, "mlp_bias True"),
    (llama, {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, "'yarn'"),
    (llama, {"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"),
    (llama, {"rope_parameters": {"rope_theta": 500.0, "partial_rotary_factor": 0.5}}, "partial_rotary_factor 0.5"),
    (llama, {"num_local_experts": 8}, "num_local_experts 8"),
    (llama, {"logit_scale": 0.0625}, "logit_scale 0.0625"),
    (mistral, {"layer_types": ["chunked_attention"] * 7}, "'chunked_attention'"),
    (mistral, {"num_local_experts": 8}, "num_local_experts 8"),
    (qwen2, {"hidden_act": "relu"}, "hidden_act 'relu'"),
    (qwen2, {"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
    (qwen3, {"attention_bias": True}, "attention_bias True"),
    (qwen3, {"num_experts": 128}, "num_experts 128"),
    (gemma3, {"model_type": "gemma3"}, "model_type 'gemma3'"),
    (gemma3, {"hidden_activation": "silu"}, "hidden_activation 'silu'"),
    (gemma3, {"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
    (gemma3, {"use_bidirectional_attention": True}, "use_bidirectional_attention True"),
    (llama, {"model_type": "falcon"}, "'falcon'"),
]


@pytest.mark.parametrize(("make", "settings", "named"), HF_REFUSED, ids=_name)
def test_what_a_config_asks_for_and_we_do_not_know_is_refused(
    tmp_path: Path, make: Make, settings: dict[str, object], named: str
) -> None:
    assert named in refusal(save_folder(tmp_path, make, settings), UnsupportedModel)


CONTRADICTORY = [
    (llama, {"rope_parameters": "yarn"}, "rope_parameters must be an object"),
    (llama, {"rope_scaling": [1]}, "rope_scaling must be an object"),
    (llama, {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "contradict each other: default, yarn"),
    (
        llama,
        {"rope_parameters": {"rope_type": "default", "type": "yarn"}},
        "'default' contradicts rope_parameters.type",
    ),
    (mistral, {"layer_types": ["sliding_attention"] * 7, "sliding_window": None}, "there is no sliding_window"),
]


@pytest.mark.parametrize(("make", "settings", "named"), CONTRADICTORY, ids=_name)
def test_a_config_that_contradicts_itself_is_refused(
    tmp_path: Path, make: Make, settings: dict[str, object], named: str
) -> None:
    assert named in refusal(save_folder(tmp_path, make, settings), CorruptFile)


GGUF_REFUSED = [
    (llama, {"llama.rope.scale_linear": 4.0}, "llama.rope.scale_linear 4"),
    (llama, {"llama.rope.dimension_count": 4}, "llama.rope.dimension_count 4"),
    (llama, {"llama.rope.scaling.type": "yarn"}, "'yarn'"),
    (llama, {"llama.attention.causal": False}, "attention.causal False"),
    (llama, {"llama.expert_count": 8}, "llama.expert_count 8"),
    (llama, {"llama.logit_scale": 0.0625}, "llama.logit_scale 0.0625"),
    (llama, {"llama.attention.scale": 0.5}, "llama.attention.scale"),
    (qwen2, {"qwen2.rope.dimension_count": 4}, "qwen2.rope.dimension_count 4"),
    (qwen3, {"qwen3.expert_count": 128}, "qwen3.expert_count 128"),
    (gemma3, {"gemma3.attn_logit_softcapping": 50.0}, "gemma3.attn_logit_softcapping"),
    (gemma3, {"gemma3.final_logit_softcapping": 30.0}, "gemma3.final_logit_softcapping"),
    (gemma3, {"gemma3.attention.value_length": 8}, "different width"),
    (llama, {"general.architecture": "falcon"}, "'falcon'"),
]


@pytest.mark.parametrize(("make", "settings", "named"), GGUF_REFUSED, ids=_name)
def test_what_a_gguf_file_asks_for_and_we_do_not_know_is_refused(
    tmp_path: Path, make: Make, settings: dict[str, object], named: str
) -> None:
    assert named in refusal(save_gguf(tmp_path, make, settings), UnsupportedModel)


def test_settings_that_change_nothing_are_accepted(tmp_path: Path) -> None:
    hf = {"partial_rotary_factor": 1.0, "num_local_experts": 0, "logit_scale": 1}
    load_decoder(open_checkpoint(save_folder(tmp_path, llama, hf)), torch.float32)
    in_gguf = {"llama.rope.scale_linear": 1.0, "llama.expert_count": 0, "llama.rope.dimension_count": 8}
    load_decoder(open_checkpoint(save_gguf(tmp_path, llama, in_gguf)), torch.float32)


def test_a_model_without_layers_is_refused(tmp_path: Path) -> None:
    assert "'num_hidden_layers'" in refusal(save_folder(tmp_path, llama, {"num_hidden_layers": 0}), CorruptFile)
    assert "'llama.block_count'" in refusal(save_gguf(tmp_path, llama, {"llama.block_count": 0}), CorruptFile)


@pytest.mark.parametrize("name", [EMBEDDING, QUERY, "model.norm.weight", "model.layers.6.mlp.down_proj.weight"])
def test_a_missing_tensor_is_named(tmp_path: Path, name: str) -> None:
    path = save_folder(tmp_path, llama, change=lambda tensors: tensors.pop(name))
    assert f"'{name}'" in refusal(path, MissingTensor)


def test_a_tensor_of_the_wrong_shape_is_named_with_both_shapes(tmp_path: Path) -> None:
    path = save_folder(tmp_path, llama, change=lambda tensors: tensors.update({QUERY: torch.zeros(40, 48)}))
    message = refusal(path, WrongShape)
    assert f"'{QUERY}'" in message
    assert "[40, 48]" in message
    assert "[48, 48]" in message


@pytest.mark.parametrize("shape", [(), (97,), (97, 48, 1), (97, 47), (96, 48)], ids=_name)
def test_an_embedding_of_the_wrong_shape_is_refused_with_both_shapes(tmp_path: Path, shape: tuple[int, ...]) -> None:
    path = save_folder(tmp_path, llama3, change=lambda tensors: tensors.update({EMBEDDING: torch.zeros(shape)}))
    message = refusal(path, WrongShape)
    assert f"'{EMBEDDING}' has shape {list(shape)}" in message
    assert "[97 or more, 48]" in message


def test_a_gguf_embedding_with_fewer_rows_than_the_vocabulary_is_refused(tmp_path: Path) -> None:
    assert "[98 or more, 48]" in refusal(save_gguf(tmp_path, llama, {"llama.vocab_size": 98}), WrongShape)


def test_an_embedding_may_be_padded(tmp_path: Path) -> None:
    path = save_folder(tmp_path, llama3, change=lambda tensors: tensors.update({EMBEDDING: torch.zeros(128, 48)}))
    assert load_decoder(open_checkpoint(path), torch.float32).config.vocab_size == 128


@pytest.mark.parametrize("make", [llama, mistral, qwen2, qwen3])
@pytest.mark.parametrize("said", [{"tie_word_embeddings": False}, {"tie_word_embeddings": None}], ids=_name)
def test_an_absent_head_is_missing_unless_the_config_calls_it_tied(
    tmp_path: Path, make: Make, said: dict[str, object]
) -> None:
    path = save_folder(tmp_path, make, said, lambda tensors: tensors.pop("lm_head.weight"))
    assert "'lm_head.weight'" in refusal(path, MissingTensor)


def test_gemma_is_tied_unless_its_config_says_otherwise(tmp_path: Path) -> None:
    assert config_of(save_folder(tmp_path, gemma3, {"tie_word_embeddings": None})).tied
    assert "'lm_head.weight'" in refusal(save_folder(tmp_path, gemma3, {"tie_word_embeddings": False}), MissingTensor)


UNUSED = [
    (llama, {"model.layers.0.self_attn.q_proj.bias": (48,)}),
    (llama, {"model.layers.0.self_attn.q_norm.weight": (8,)}),
    (llama, {"lm_head.bias": (97,)}),
    (qwen3, {"model.layers.0.self_attn.q_proj.bias": (96,)}),
    (qwen2, {"rope_freqs.weight": (4,)}),
    (gemma3, {"model.layers.2.mlp.experts.weight": (3, 4)}),
]


@pytest.mark.parametrize(("make", "extra"), UNUSED, ids=_name)
def test_a_tensor_that_the_architecture_does_not_use_is_refused(
    tmp_path: Path, make: Make, extra: dict[str, tuple[int, ...]]
) -> None:
    added = {name: torch.zeros(shape) for name, shape in extra.items()}
    message = refusal(save_folder(tmp_path, make, change=lambda tensors: tensors.update(added)), UnsupportedModel)
    assert all(repr(name) in message for name in extra)


def test_layers_beyond_the_configured_ones_are_refused_and_three_tensors_named(tmp_path: Path) -> None:
    message = refusal(save_folder(tmp_path, llama, {"num_hidden_layers": 6, "layer_types": None}), UnsupportedModel)
    assert message.count("'model.layers.6.") == 3
    assert "and 6 more" in message


def test_a_tensor_of_a_gguf_file_that_the_architecture_does_not_use_is_refused(tmp_path: Path) -> None:
    message = refusal(save_gguf(tmp_path, llama, tensors={"blk.0.attn_q.bias": (48,)}), UnsupportedModel)
    assert "'model.layers.0.self_attn.q_proj.bias'" in message
    message = refusal(save_gguf(tmp_path, llama, tensors={"blk.0.ffn_gate_inp.weight": (8, 48)}), UnsupportedModel)
    assert "'blk.0.ffn_gate_inp.weight'" in message


def test_stored_rotary_frequencies_do_no_harm(tmp_path: Path) -> None:
    buffers = {f"model.layers.{layer}.self_attn.rotary_emb.inv_freq": torch.zeros(4) for layer in range(7)}
    path = save_folder(tmp_path, llama, change=lambda tensors: tensors.update(buffers))
    load_decoder(open_checkpoint(path), torch.float32)


def test_gemmas_pattern_means_the_same_as_a_list_of_layers(tmp_path: Path) -> None:
    listed = config_of(save_folder(tmp_path, gemma3_every_third))
    assert [layer.window for layer in listed.layers] == [9, 9, None, 9, 9, None, 9]
    pattern: dict[str, object] = {"layer_types": None, "sliding_window_pattern": 3}
    assert config_of(save_folder(tmp_path, gemma3_every_third, pattern)) == listed
    assert config_of(save_gguf(tmp_path, gemma3_every_third)).layers == listed.layers


@pytest.mark.parametrize(("settings", "factor"), [({}, 1.0), ({"llama.rope.scaling.factor": 4.0}, 4.0)], ids=_name)
def test_a_rotary_factor_without_a_type_is_linear(tmp_path: Path, settings: dict[str, object], factor: float) -> None:
    assert config_of(save_gguf(tmp_path, llama, settings)).ropes[0].linear_factor == factor


@pytest.mark.parametrize(("num_layers", "expected"), [(62, 168**-0.5), (48, 128**-0.5)])
def test_only_gemma_27b_scales_by_hidden_over_heads(num_layers: int, expected: float) -> None:
    values = {
        "gemma3.context_length": 131_072,
        "gemma3.embedding_length": 5376,
        "gemma3.block_count": num_layers,
        "gemma3.feed_forward_length": 21_504,
        "gemma3.attention.head_count": 32,
        "gemma3.attention.head_count_kv": 16,
        "gemma3.attention.key_length": 128,
        "gemma3.attention.value_length": 128,
        "gemma3.attention.layer_norm_rms_epsilon": 1e-6,
        "gemma3.attention.sliding_window": 1024,
        "gemma3.rope.freq_base": 1_000_000.0,
        "gemma3.rope.scaling.type": "linear",
        "gemma3.rope.scaling.factor": 8.0,
    }
    weights = DictSource({EMBEDDING: np.zeros((8, 5376), dtype=np.float32)})
    config = gemma3_file.config_from_gguf(Metadata(Path("27b.gguf"), values), weights)
    assert config.attention_scale == pytest.approx(expected)
    assert [rope.linear_factor for rope in config.ropes] == [8.0, 1.0]
    assert [rope.theta for rope in config.ropes] == [1_000_000.0, 10_000.0]
    assert config.layers[5].window is None
    assert config.layers[4].window == 1024
