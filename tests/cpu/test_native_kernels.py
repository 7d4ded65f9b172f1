"""The native kernels: exact packing, the same bits from every instruction set, close to float32, any company."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch.nn import functional

from cutaway.errors import MissingTensor, UnsupportedModel
from cutaway.executor.kv import BlockLayout, KVStore
from cutaway.executor.model import Model
from cutaway.executor.torch_model import TorchModel
from cutaway.kernels import native
from cutaway.kernels.batch import RowSpan, TokenBatch
from cutaway.kernels.sources import digest
from cutaway.models.build import load_decoder
from cutaway.models.native import NativeDecoder, load_native, why_not_native
from cutaway.models.registry import read_config
from cutaway.quant.block_types import BLOCK_TYPES_BY_NAME
from cutaway.quant.ggml import dequantize
from cutaway.text.load import load_text
from cutaway.weights.checkpoint import Checkpoint, open_checkpoint

MODELS = ("smollm2-135m-instruct", "qwen2.5-coder-0.5b-instruct", "gemma-3-270m")
BFLOAT16_NAN = 0x7FC0
TEXT = (
    "The tomato is the edible berry of a plant that came from western South America. Its name goes back to a word of "
    "the Nahuatl language. Botanically it is a fruit, a berry that grows from the ovary of a flower; in the kitchen, "
    "however, it is used as a vegetable, because it is not sweet enough for a dessert."
)


@pytest.fixture(autouse=True, scope="module")
def one_torch_thread() -> Iterator[None]:
    """As in the engine: torch's threads would spin beside those of the kernels."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


def test_the_library_is_there_with_a_portable_path() -> None:
    assert native.instruction_sets(), "it was not built: is there a C++ compiler?"
    assert native.instruction_sets()[-1] == "portable"
    assert native.why_absent() is None


def test_a_library_from_other_sources_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "_native.so"
    other.write_bytes(native.LIBRARY.read_bytes().replace(digest().encode(), b"0" * 64))
    monkeypatch.setattr(native, "LIBRARY", other)
    native.library.cache_clear()
    try:
        assert native.library() is None
        assert "install Cutaway again" in str(native.why_absent())
        assert native.instruction_sets() == ()
    finally:
        monkeypatch.undo()
        native.library.cache_clear()


def random_blocks(type_name: str, rows: int, cols: int) -> torch.Tensor:
    """Random bytes, with scales that are ordinary numbers."""
    block = BLOCK_TYPES_BY_NAME[type_name]
    generator = torch.Generator().manual_seed(cols)
    blocks = torch.randint(0, 256, (rows, cols // block.block_size, block.num_bytes), generator=generator).byte()
    halves = {"Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}.get(type_name, (0,))
    for offset in halves:
        scale = (torch.rand(rows, cols // block.block_size, 1, generator=generator) - 0.5).half()
        blocks[:, :, offset : offset + 2] = scale.view(torch.uint8)
    return blocks.view(rows, -1)


@pytest.mark.parametrize("rows", [1, 16, 37])
@pytest.mark.parametrize("type_name", native.PACKED_TYPES)
def test_a_packed_matrix_holds_the_numbers_of_the_file(type_name: str, rows: int) -> None:
    stored = random_blocks(type_name, rows, 512)
    arena = native.Arena(native.aligned(native.packed_bytes(type_name, rows, 512)))
    packed = native.PackedMatrix(arena, type_name, rows, 512)
    for first in range(0, rows, 20):
        packed.pack(stored[first : first + 20].numpy(), first)
    numbers = torch.from_numpy(np.stack([packed.row(index) for index in range(rows)]))
    expected = dequantize(stored, type_name)
    if type_name == "Q6_K":  # 8 bits for what had 6, with one scale for two
        largest = expected.view(rows, -1, 32).abs().amax(-1, keepdim=True)
        assert ((numbers - expected).view(rows, -1, 32).abs() <= largest / 250).all()
    else:
        assert torch.equal(numbers, expected)


@pytest.fixture(scope="module", params=MODELS)
def checkpoint(request: pytest.FixtureRequest, real_model: Callable[[str], Path]) -> Checkpoint:
    return open_checkpoint(real_model(request.param))


def load(checkpoint: Checkpoint, instruction_set: str, num_threads: int = 2) -> NativeDecoder:
    return load_native(checkpoint, instruction_set, num_threads)


def slots_of(layout: BlockLayout, first_block: int) -> npt.NDArray[np.int64]:
    """Slots of the positions of a request that has all blocks from one on."""
    return layout.slots(range(first_block, layout.num_blocks))


def logits_of(model: Model, number_bytes: int, ids: tuple[int, ...], chunks: list[int]) -> torch.Tensor:
    """Logits after every token, [tokens, vocab], of a text that is read in chunks of these sizes."""
    store = KVStore(model.config, number_bytes, 16, [len(ids) // 16 + 1] * len(model.config.windows))
    logits, start = [], 0
    for size in chunks:
        end = start + size
        groups = tuple((RowSpan(0, size, start, slots_of(layout, 0)[:end]),) for layout in store.layouts)
        batch = TokenBatch(np.array(ids[start:end]), np.arange(start, end), groups)
        logits.append(model.compute(batch, store.layers, range(size)))
        start = end
    assert start == len(ids)
    return torch.from_numpy(np.concatenate(logits))


@pytest.mark.parametrize("instruction_set", native.instruction_sets())
def test_chunks_and_threads_never_change_a_bit(checkpoint: Checkpoint, instruction_set: str) -> None:
    num_tokens = 40 if instruction_set == "portable" else 80  # slow, and has no way of its own for many rows
    ids = load_text(checkpoint)[0].encode(TEXT * 2).token_ids[:num_tokens]
    whole = logits_of(load(checkpoint, instruction_set), 2, ids, [num_tokens])
    chunks = [1, 9, 4, 17, num_tokens - 31]  # without tiles and with them, a rest of either kind
    model = load(checkpoint, instruction_set, num_threads=1)
    assert torch.equal(logits_of(model, 2, ids, chunks), whole)


def test_instruction_sets_agree(checkpoint: Checkpoint) -> None:
    ids = load_text(checkpoint)[0].encode(TEXT).token_ids[:40]
    portable = logits_of(load(checkpoint, "portable", num_threads=3), 2, ids, [40])
    for instruction_set in native.instruction_sets():
        logits = logits_of(load(checkpoint, instruction_set), 2, ids, [40])
        if instruction_set == "amx":  # its attention rounds queries and weights to bfloat16
            divergence = functional.kl_div(
                logits.log_softmax(-1), portable.log_softmax(-1), log_target=True, reduction="batchmean"
            )
            assert 0 < divergence < 0.03
        else:
            assert torch.equal(logits, portable), instruction_set


def test_the_answers_are_close_to_those_of_float32(checkpoint: Checkpoint) -> None:
    ids = load_text(checkpoint)[0].encode(TEXT).token_ids
    exact = logits_of(TorchModel(load_decoder(checkpoint, torch.float32)), 4, ids, [len(ids)]).log_softmax(-1)
    model = load(checkpoint, native.instruction_sets()[0])
    ours = logits_of(model, 2, ids, [len(ids)]).log_softmax(-1)
    divergence = functional.kl_div(ours, exact, log_target=True, reduction="batchmean").item()
    assert 0 <= divergence < 0.02
    assert (ours.argmax(-1) == exact.argmax(-1)).float().mean() > 0.9


@pytest.mark.parametrize("name", [name for name in [native.fast_set()] if name])
def test_fast_numerics_are_close_to_float32_and_the_same_for_any_many_rows(checkpoint: Checkpoint, name: str) -> None:
    ids = (load_text(checkpoint)[0].encode(TEXT * 4).token_ids)[:160]
    model = load(checkpoint, name)
    whole = logits_of(model, 2, ids, [160])
    # Tiles of 16 and of 32 rows, a rest of either, and units of rows of one thread.
    assert torch.equal(logits_of(load(checkpoint, name, num_threads=3), 2, ids, [9, 16, 20, 32, 83]), whole)
    exact = logits_of(TorchModel(load_decoder(checkpoint, torch.float32)), 4, ids, [160]).log_softmax(-1)
    divergence = functional.kl_div(whole.log_softmax(-1), exact, log_target=True, reduction="batchmean").item()
    assert 0 <= divergence < 0.005
    few = logits_of(model, 2, ids, [1, 8, 151])  # in 8 bits, and not the same
    assert not torch.equal(few, whole)


def test_numbers_that_are_not_finite_stay_with_their_request(checkpoint: Checkpoint) -> None:
    model = load(checkpoint, native.instruction_sets()[0])
    ids = load_text(checkpoint)[0].encode(TEXT).token_ids[:20]
    healthy = logits_of(model, 2, ids, [20])
    windows = model.config.windows
    store = KVStore(model.config, 2, 16, [4] * len(windows))
    groups = []
    for layout in store.layouts:
        healthys, sicks = slots_of(layout, 0)[:20], slots_of(layout, 2)[:20]
        # A request whose first token was computed by somebody who left numbers that are none, beside a healthy one.
        groups.append((RowSpan(0, 20, 0, healthys), RowSpan(20, 19, 1, sicks)))
    for config, cache in zip(model.config.layers, store.layers, strict=True):
        slots = slots_of(store.layouts[windows.index(config.window)], 2)
        cache.key[slots] = BFLOAT16_NAN
        cache.value[slots] = BFLOAT16_NAN
    positions = np.concatenate((np.arange(20), np.arange(1, 20)))
    batch = TokenBatch(np.array((*ids, *ids[1:])), positions, tuple(groups))
    logits = model.compute(batch, store.layers, range(39))
    assert np.array_equal(logits[:20], healthy)
    assert np.isnan(logits[20:]).all()


def test_what_an_architecture_has_is_required_and_nothing_else_is_read(checkpoint: Checkpoint) -> None:
    weights = checkpoint.weights()
    config = read_config(checkpoint, weights)
    assert why_not_native(config, weights) is None
    assert why_not_native(replace(config, architecture="other"), weights) == "architecture 'other'"
    for architecture in {"llama", "qwen2", "qwen3", "gemma3"} - {config.architecture.removesuffix("_text")}:
        with pytest.raises((MissingTensor, UnsupportedModel)):
            NativeDecoder(replace(config, architecture=architecture), weights, "portable", 1)
    weights.close()


def test_a_token_that_the_model_does_not_have_is_refused(checkpoint: Checkpoint) -> None:
    model = load(checkpoint, native.instruction_sets()[0])
    for token_id in (-1, model.config.vocab_size):
        with pytest.raises(IndexError, match="a token id is outside"):
            logits_of(model, 2, (token_id,), [1])
