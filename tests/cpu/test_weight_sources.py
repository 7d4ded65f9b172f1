"""The contract of ``WeightSource``, for every source that there is."""

from collections.abc import Callable, Iterator
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from model_bytes import safetensors_bytes
from safetensors.torch import save_file

from cutaway.errors import MissingTensor, WrongShape
from cutaway.weights.checkpoint import open_checkpoint
from cutaway.weights.decoded import DecodedWeights
from cutaway.weights.memory import DictSource
from cutaway.weights.source import WeightSource

SEED = 20_260_830


def make_tensors() -> dict[str, torch.Tensor]:
    """Tensors of one, two and three dimensions; the embedding is decoded in several chunks of unequal size."""
    generator = torch.Generator().manual_seed(SEED)
    shapes = {
        "model.embed_tokens.weight": (1003, 320),
        "model.layers.0.input_layernorm.weight": (96,),
        "model.layers.0.self_attn.q_proj.weight": (64, 96),
        "model.layers.0.self_attn.q_proj.bias": (64,),
        "experts": (3, 5, 32),
        "lm_head.weight": (1, 7),
    }
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


GGUF_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.layers.0.input_layernorm.weight": "blk.0.attn_norm.weight",
    "model.layers.0.self_attn.q_proj.weight": "blk.0.attn_q.weight",
    "model.layers.0.self_attn.q_proj.bias": "blk.0.attn_q.bias",
    "lm_head.weight": "output.weight",
}


def gguf_source(folder: Path, tensors: dict[str, torch.Tensor]) -> WeightSource:
    writer = gguf.GGUFWriter(folder / "tiny.gguf", "qwen2")
    for name, tensor in tensors.items():
        writer.add_tensor(GGUF_NAMES.get(name, name), tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return open_checkpoint(folder / "tiny.gguf").weights()


def folder_source(folder: Path, tensors: dict[str, torch.Tensor]) -> WeightSource:
    (folder / "config.json").write_text('{"model_type": "qwen2"}')
    save_file(tensors, folder / "model.safetensors")
    return open_checkpoint(folder).weights()


def misaligned_source(folder: Path, tensors: dict[str, torch.Tensor]) -> WeightSource:
    """A safetensors file whose data begin at an odd address, which the format allows."""
    (folder / "config.json").write_text('{"model_type": "qwen2"}')
    described = {name: ("F32", tuple(tensor.shape), tensor.numpy().tobytes()) for name, tensor in tensors.items()}
    data = safetensors_bytes(described)
    length = int.from_bytes(data[:8], "little")
    spaces = (1 - length) % 2 or 2
    header = data[8 : 8 + length] + b" " * spaces
    assert len(header) % 2 == 1
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + data[8 + length :])
    return open_checkpoint(folder).weights()


def dict_source(folder: Path, tensors: dict[str, torch.Tensor]) -> WeightSource:
    return DictSource({name: as_array(tensor) for name, tensor in tensors.items()})


def as_array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.view(torch.uint16).numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()


def read_into(source: WeightSource, name: str, out: torch.Tensor) -> None:
    with DecodedWeights(source) as weights:
        weights.read_into(name, out)


@pytest.fixture(params=[gguf_source, folder_source, misaligned_source, dict_source])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WeightSource]:
    make: Callable[[Path, dict[str, torch.Tensor]], WeightSource] = request.param
    opened = make(tmp_path, make_tensors())
    yield opened
    opened.close()


def test_it_has_the_tensors_that_were_put_in_and_no_others(source: WeightSource) -> None:
    assert sorted(source) == sorted(make_tensors())
    assert all(name in source for name in make_tensors())
    assert "model.norm.weight" not in source


def test_shape_and_storage_are_known_without_reading(source: WeightSource) -> None:
    for name, tensor in make_tensors().items():
        assert source.shape(name) == tuple(tensor.shape)
        assert source.storage(name) == "F32"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_a_tensor_is_rounded_once_to_the_dtype_of_its_place(source: WeightSource, dtype: torch.dtype) -> None:
    for name, tensor in make_tensors().items():
        out = torch.full_like(tensor, torch.nan, dtype=dtype)
        read_into(source, name, out)
        assert torch.equal(out, tensor.to(dtype))


def test_the_place_may_be_a_view_and_its_surroundings_stay_untouched(source: WeightSource) -> None:
    for name, tensor in make_tensors().items():
        room = torch.full((tensor.shape[0] + 2, *(length + 3 for length in tensor.shape[1:])), 9.0)
        view = room[1:-1][(slice(None), *(slice(1, length + 1) for length in tensor.shape[1:]))]
        read_into(source, name, view)
        assert torch.equal(view, tensor)
        assert (room == 9.0).sum() == room.numel() - tensor.numel()
    name = "model.embed_tokens.weight"
    columns = torch.zeros(source.shape(name)[::-1]).T
    read_into(source, name, columns)
    assert torch.equal(columns, make_tensors()[name])


def test_the_place_may_be_a_parameter_or_made_in_inference_mode(source: WeightSource) -> None:
    for name, tensor in make_tensors().items():
        parameter = torch.nn.Parameter(torch.zeros_like(tensor))
        with torch.inference_mode():
            inference = torch.zeros_like(tensor)
        for out in (parameter, inference):
            read_into(source, name, out)
            assert torch.equal(out, tensor)
        assert parameter.requires_grad


def test_rows_are_read_as_they_are_stored(source: WeightSource) -> None:
    for name, tensor in make_tensors().items():
        if tensor.dim() > 1:
            pieces = list(source.read_rows(name, tuple(tensor.shape)))
            assert np.concatenate(pieces).tobytes() == tensor.numpy().tobytes()
            assert {piece.shape[1] for piece in pieces} == {4 * tensor.shape[-1]}


def test_vectors_are_read_without_torch(source: WeightSource) -> None:
    name = "model.layers.0.input_layernorm.weight"
    vector = source.read_vector(name, (96,))
    assert vector.dtype == np.float32
    assert np.array_equal(vector, make_tensors()[name].numpy())
    assert vector.flags.aligned
    assert name not in source.unread()
    with pytest.raises(WrongShape):
        source.read_vector(name, (95,))


def test_reading_twice_gives_the_same(source: WeightSource) -> None:
    name = "model.embed_tokens.weight"
    first, second = (torch.zeros(source.shape(name)) for _ in range(2))
    read_into(source, name, first)
    read_into(source, name, second)
    assert torch.equal(first, second)


def test_it_knows_which_tensors_nobody_has_read(source: WeightSource) -> None:
    names = list(source)
    assert source.unread() == tuple(names)
    for name in ("lm_head.weight", "experts", "experts"):
        read_into(source, name, torch.zeros(source.shape(name)))
    with pytest.raises(WrongShape):
        read_into(source, "model.embed_tokens.weight", torch.zeros(1))
    assert source.unread() == tuple(name for name in names if name not in ("lm_head.weight", "experts"))


def test_an_absent_tensor_is_named(source: WeightSource) -> None:
    with pytest.raises(MissingTensor, match=r"'model\.norm\.weight'"):
        source.shape("model.norm.weight")
    with pytest.raises(MissingTensor, match=r"'model\.norm\.weight'"):
        source.storage("model.norm.weight")
    with pytest.raises(MissingTensor, match=r"'model\.norm\.weight'"):
        read_into(source, "model.norm.weight", torch.zeros(1))


@pytest.mark.parametrize("shape", [(96, 64), (64, 95), (6144,), (1, 64, 96), ()])
def test_a_place_of_another_shape_is_refused_with_both_shapes(source: WeightSource, shape: tuple[int, ...]) -> None:
    with pytest.raises(WrongShape) as error:
        read_into(source, "model.layers.0.self_attn.q_proj.weight", torch.zeros(shape))
    assert "[64, 96]" in error.value.message
    assert str(list(shape)) in error.value.message


def test_a_closed_source_reads_nothing(source: WeightSource) -> None:
    source.close()
    with pytest.raises((AssertionError, MissingTensor)):
        read_into(source, "lm_head.weight", torch.zeros(1, 7))


def test_reading_leaves_the_threads_of_torch_as_they_were(source: WeightSource) -> None:
    before = torch.get_num_threads()
    read_into(source, "lm_head.weight", torch.zeros(1, 7))
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(("dtype", "storage"), [(torch.bfloat16, "BF16"), (torch.float16, "F16")])
@pytest.mark.parametrize("make", [folder_source, dict_source])
def test_half_precision_is_read_exactly(
    make: Callable[[Path, dict[str, torch.Tensor]], WeightSource], dtype: torch.dtype, storage: str, tmp_path: Path
) -> None:
    tensors = {name: tensor.to(dtype) for name, tensor in make_tensors().items()}
    source = make(tmp_path, tensors)
    for name, tensor in tensors.items():
        out = torch.zeros(tensor.shape)
        read_into(source, name, out)
        assert torch.equal(out, tensor.float())
        assert source.storage(name) == storage
    source.close()


def test_a_scalar_is_a_tensor_too(tmp_path: Path) -> None:
    for source in (
        folder_source(tmp_path, {"s": torch.tensor(2.5)}),
        DictSource({"s": np.array(2.5, dtype=np.float32)}),
    ):
        out = torch.tensor(0.0)
        read_into(source, "s", out)
        assert (source.shape("s"), out.item()) == ((), 2.5)
        source.close()


def test_half_precision_of_a_gguf_file_is_read_exactly(tmp_path: Path) -> None:
    tensors = {name: tensor.half() for name, tensor in make_tensors().items()}
    source = gguf_source(tmp_path, tensors)
    for name, tensor in tensors.items():
        out = torch.zeros(tensor.shape)
        read_into(source, name, out)
        assert np.array_equal(out.numpy(), tensor.float().numpy())
    source.close()
