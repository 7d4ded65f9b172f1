"""Tensors of Hugging Face style folders: the norms of Gemma, shards, and types that are no weights."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from cutaway.errors import UnsupportedModel
from cutaway.weights.checkpoint import open_checkpoint
from cutaway.weights.decoded import DecodedWeights
from cutaway.weights.source import WeightSource

NORMS = [
    "model.norm.weight",
    "model.layers.0.input_layernorm.weight",
    "model.layers.0.post_attention_layernorm.weight",
    "model.layers.0.pre_feedforward_layernorm.weight",
    "model.layers.0.post_feedforward_layernorm.weight",
    "model.layers.0.self_attn.q_norm.weight",
    "model.layers.0.self_attn.k_norm.weight",
]


def write_folder(folder: Path, model_type: str, *shards: dict[str, torch.Tensor]) -> Path:
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    if len(shards) == 1:
        save_file(shards[0], folder / "model.safetensors")
        return folder
    weight_map = {}
    for number, tensors in enumerate(shards, start=1):
        shard = f"model-{number:05}-of-{len(shards):05}.safetensors"
        save_file(tensors, folder / shard)
        weight_map |= dict.fromkeys(tensors, shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


def read_into(source: WeightSource, name: str, out: torch.Tensor) -> None:
    with DecodedWeights(source) as weights:
        weights.read_into(name, out)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norms_of_gemma_come_as_factors_added_in_float32(tmp_path: Path, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    norms = {name: (torch.randn(64) / 100).to(dtype) for name in NORMS}
    other = {"model.layers.0.mlp.up_proj.weight": torch.randn(3, 64).to(dtype)}
    source = open_checkpoint(write_folder(tmp_path, "gemma3_text", norms | other)).weights()
    for name, stored in norms.items():
        exact, rounded = torch.zeros(64), torch.zeros(64, dtype=torch.bfloat16)
        read_into(source, name, exact)
        read_into(source, name, rounded)
        assert torch.equal(exact, stored.float() + 1)
        assert torch.equal(rounded, (stored.float() + 1).bfloat16())
    matrix = torch.zeros(3, 64)
    read_into(source, "model.layers.0.mlp.up_proj.weight", matrix)
    assert torch.equal(matrix, other["model.layers.0.mlp.up_proj.weight"].float())
    source.close()


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "qwen3"])
def test_norms_of_other_architectures_are_factors_already(tmp_path: Path, model_type: str) -> None:
    norms = {name: torch.full((4,), 0.5) for name in NORMS}
    source = open_checkpoint(write_folder(tmp_path, model_type, norms)).weights()
    for name in NORMS:
        out = torch.zeros(4)
        read_into(source, name, out)
        assert out.tolist() == [0.5] * 4
    source.close()


def test_tensors_are_read_from_all_shards(tmp_path: Path) -> None:
    shards = [{f"tensor.{number}": torch.full((2, 3), float(number))} for number in range(3)]
    source = open_checkpoint(write_folder(tmp_path, "llama", *shards)).weights()
    for number in range(3):
        out = torch.zeros(2, 3)
        read_into(source, f"tensor.{number}", out)
        assert torch.equal(out, shards[number][f"tensor.{number}"])
    source.close()


@pytest.mark.parametrize(
    ("dtype", "name"), [(torch.float8_e4m3fn, "F8_E4M3"), (torch.float64, "F64"), (torch.int32, "I32")]
)
def test_a_type_that_is_no_weight_is_refused_by_name(tmp_path: Path, dtype: torch.dtype, name: str) -> None:
    folder = write_folder(tmp_path, "llama", {"a": torch.zeros(2, 2).to(dtype), "b": torch.ones(2)})
    source = open_checkpoint(folder).weights()
    out = torch.zeros(2)
    read_into(source, "b", out)
    assert out.tolist() == [1.0, 1.0]
    with pytest.raises(UnsupportedModel, match=f"'a' is stored as {name}"):
        read_into(source, "a", torch.zeros(2, 2))
    source.close()
