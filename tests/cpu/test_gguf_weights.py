"""Tensors of GGUF files: names, the order of query and key rows, quantized types, split files, changed files."""

from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, quants
from model_bytes import ARRAY, F32, STRING, Tensor, Value, gguf_bytes

from cutaway.errors import CorruptFile, UnsupportedModel
from cutaway.weights.checkpoint import open_checkpoint
from cutaway.weights.decoded import DecodedWeights
from cutaway.weights.gguf import split_halves
from cutaway.weights.gguf_names import canonical_name
from cutaway.weights.source import WeightSource

SEED = 20_260_830
HEADS, HEADS_KV, HEAD_DIM, HIDDEN = 4, 2, 6, 64
QUANTIZABLE = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4", "TQ2_0"]


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(SEED).standard_normal(shape).astype(np.float32)


def write(
    path: Path, architecture: str, tensors: dict[str, np.ndarray], storage: str = "F32", **options: int
) -> WeightSource:
    writer = gguf.GGUFWriter(path, architecture, **options)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS_KV)
    for name, tensor in tensors.items():
        kind = GGMLQuantizationType[storage if tensor.ndim > 1 else "F32"]
        writer.add_tensor(name, quants.quantize(tensor, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    written = path if path.exists() else next(path.parent.glob("*-00002-of-*.gguf"))
    return open_checkpoint(written).weights()


def read(source: WeightSource, name: str) -> torch.Tensor:
    out = torch.full(source.shape(name), torch.nan)
    with DecodedWeights(source) as weights:
        weights.read_into(name, out)
    return out


def interleave(rows: np.ndarray, num_heads: int) -> np.ndarray:
    """What a converter does to query and key rows: the inverse of what the source must do."""
    halves = rows.reshape(num_heads, 2, HEAD_DIM // 2, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


@pytest.mark.parametrize("storage", QUANTIZABLE)
def test_a_matrix_of_any_type_is_read_as_ggml_reads_it(tmp_path: Path, storage: str) -> None:
    matrix = random(300, 768)
    source = write(tmp_path / "a.gguf", "qwen2", {"token_embd.weight": matrix}, storage)
    kind = GGMLQuantizationType[storage]
    expected = quants.dequantize(quants.quantize(matrix, kind), kind)
    assert source.storage("model.embed_tokens.weight") == storage
    assert np.array_equal(read(source, "model.embed_tokens.weight").numpy(), expected)
    source.close()


@pytest.mark.parametrize("piece_bytes", [1, 5 * HIDDEN, 7 * HEAD_DIM * HIDDEN, 10**9])
@pytest.mark.parametrize("storage", ["F32", "Q8_0"])
def test_query_and_key_rows_of_llama_come_back_in_half_split_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: str, piece_bytes: int
) -> None:
    monkeypatch.setattr("cutaway.weights.mapped_source.PIECE_BYTES", piece_bytes)
    query, key = random(HEADS * HEAD_DIM, HIDDEN), random(HEADS_KV * HEAD_DIM, HIDDEN)
    tensors = {
        "blk.0.attn_q.weight": interleave(query, HEADS),
        "blk.0.attn_k.weight": interleave(key, HEADS_KV),
        "blk.0.attn_v.weight": key,
        "blk.0.attn_q.bias": interleave(query[:, 0], HEADS),
        "blk.0.attn_k.bias": interleave(key[:, 0], HEADS_KV),
    }
    source = write(tmp_path / "a.gguf", "llama", tensors, storage)
    kind = GGMLQuantizationType[storage]
    for part, expected in (("q", query), ("k", key), ("v", key)):
        values = read(source, f"model.layers.0.self_attn.{part}_proj.weight")
        assert np.array_equal(values.numpy(), quants.dequantize(quants.quantize(expected, kind), kind))
    assert np.array_equal(read(source, "model.layers.0.self_attn.q_proj.bias").numpy(), query[:, 0])
    assert np.array_equal(read(source, "model.layers.0.self_attn.k_proj.bias").numpy(), key[:, 0])
    source.close()


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3", "gemma3"])
def test_query_rows_of_other_architectures_stay_where_they_are(tmp_path: Path, architecture: str) -> None:
    query = random(HEADS * HEAD_DIM, HIDDEN)
    source = write(tmp_path / "a.gguf", architecture, {"blk.0.attn_q.weight": query})
    assert np.array_equal(read(source, "model.layers.0.self_attn.q_proj.weight").numpy(), query)
    source.close()


def test_rows_that_rotate_together_lie_half_a_head_apart() -> None:
    rows = np.arange(8).reshape(8, 1)
    assert split_halves(rows, 4).ravel().tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def llama_file(path: Path, head_count: Value | None, *, rows: int = 24) -> Path:
    metadata = {"general.architecture": Value(STRING, "llama")}
    if head_count is not None:
        metadata["llama.attention.head_count"] = head_count
    path.write_bytes(gguf_bytes(metadata, {f"blk.{layer}.attn_k.weight": Tensor((rows, 2)) for layer in (0, 1)}))
    return path


def test_the_number_of_heads_may_differ_by_layer(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(llama_file(tmp_path / "a.gguf", Value(ARRAY, [2, 3], element_type=4)))
    source = checkpoint.weights()
    assert source.shape("model.layers.1.self_attn.k_proj.weight") == (24, 2)
    source.close()
    short = open_checkpoint(llama_file(tmp_path / "b.gguf", Value(ARRAY, [], element_type=4)))
    with pytest.raises(CorruptFile, match="there is a layer 0"):
        short.weights()


@pytest.mark.parametrize("head_count", [5, 24, 48])
def test_rows_that_are_no_whole_pairs_per_head_are_refused(tmp_path: Path, head_count: int) -> None:
    checkpoint = open_checkpoint(llama_file(tmp_path / "a.gguf", Value(4, head_count)))
    with pytest.raises(CorruptFile, match=rf"'blk\.0\.attn_k\.weight' has 24 rows.*{head_count} heads"):
        checkpoint.weights()


@pytest.mark.parametrize("head_count", [None, Value(4, 0), Value(STRING, "four"), Value(4, 2**32 - 1)])
def test_a_missing_or_absurd_number_of_heads_is_refused(tmp_path: Path, head_count: Value | None) -> None:
    checkpoint = open_checkpoint(llama_file(tmp_path / "a.gguf", head_count))
    with pytest.raises(CorruptFile, match=r"llama\.attention\.head_count"):
        checkpoint.weights()


def tiny_model(architecture: str) -> torch.nn.Module:
    import transformers

    names = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "gemma3": "Gemma3"}
    prefix = names[architecture]
    config_class = getattr(transformers, f"{prefix}TextConfig" if architecture == "gemma3" else f"{prefix}Config")
    config = config_class(
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=12,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=4,
        vocab_size=16,
        tie_word_embeddings=False,
    )
    with torch.device("meta"):
        model: torch.nn.Module = getattr(transformers, f"{prefix}ForCausalLM")(config)
    return model


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "gemma3"])
def test_names_are_those_of_transformers(architecture: str) -> None:
    kind = {text: kind for kind, text in gguf.MODEL_ARCH_NAMES.items()}[architecture]
    table = gguf.get_tensor_name_map(kind, 12)
    parameters = [name for name, _ in tiny_model(architecture).named_parameters()]
    assert len(parameters) > 100
    for name in parameters:
        gguf_name = table.get_name(name, try_suffixes=(".weight", ".bias"))
        assert gguf_name is not None
        assert canonical_name(architecture, gguf_name) == name


@pytest.mark.parametrize("name", ["rope_freqs.weight", "blk.0.ffn_gate_exps.weight", "blk.01.attn_q.weight", "x", ""])
def test_a_name_without_a_translation_stays_as_it_is(name: str) -> None:
    assert canonical_name("llama", name) == name


def test_the_divisors_of_the_rotary_frequencies_pass_through(tmp_path: Path) -> None:
    divisors = random(HEAD_DIM // 2)
    source = write(tmp_path / "a.gguf", "llama", {"rope_freqs.weight": divisors})
    assert np.array_equal(read(source, "rope_freqs.weight").numpy(), divisors)
    source.close()


def test_two_tensors_of_the_same_meaning_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    tensors = {"output_norm.weight": Tensor((2,)), "model.norm.weight": Tensor((2,))}
    path.write_bytes(gguf_bytes({"general.architecture": Value(STRING, "qwen2")}, tensors))
    with pytest.raises(CorruptFile, match=r"are both 'model\.norm\.weight'"):
        open_checkpoint(path).weights()


def test_a_name_that_only_looks_like_a_projection_is_harmless(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    tensors = {"x.self_attn.q_proj.weight": Tensor((3, 2))}
    path.write_bytes(gguf_bytes({"general.architecture": Value(STRING, "llama")}, tensors))
    source = open_checkpoint(path).weights()
    assert list(source) == ["x.self_attn.q_proj.weight"]
    source.close()


def test_a_type_that_cannot_be_decoded_is_refused_with_tensor_and_type(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    tensors = {"output.weight": Tensor((2, 3), 26, bytes(24)), "output_norm.weight": Tensor((2,), F32)}
    path.write_bytes(gguf_bytes({"general.architecture": Value(STRING, "qwen2")}, tensors))
    source = open_checkpoint(path).weights()
    assert read(source, "model.norm.weight").tolist() == [0.0, 0.0]
    with pytest.raises(UnsupportedModel, match=r"'lm_head\.weight' is stored as I32"):
        read(source, "lm_head.weight")
    source.close()


def test_tensors_of_a_split_model_are_read_from_all_its_parts(tmp_path: Path) -> None:
    tensors = {f"blk.{layer}.ffn_up.weight": random(2 + layer, 32) for layer in range(5)}
    source = write(tmp_path / "a.gguf", "llama", tensors, "Q8_0", split_max_tensors=2)
    assert len(list(tmp_path.glob("*-of-00003.gguf"))) == 3
    for layer in range(5):
        expected = tensors[f"blk.{layer}.ffn_up.weight"]
        assert np.allclose(read(source, f"model.layers.{layer}.mlp.up_proj.weight").numpy(), expected, atol=0.05)
    source.close()


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"x", lambda data: b""])
def test_a_file_that_changes_while_it_is_open_is_refused(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "a.gguf"
    source = write(path, "qwen2", {"output.weight": random(3, 32), "output_norm.weight": random(32)})
    checkpoint = open_checkpoint(path)
    with path.open("r+b") as file:
        changed = change(file.read())
        file.truncate(0)
        file.seek(0)
        file.write(changed)
    for name in ("lm_head.weight", "model.norm.weight"):
        with pytest.raises(CorruptFile, match="when it was opened"):
            read(source, name)
    with pytest.raises(CorruptFile):
        checkpoint.weights()
    source.close()
