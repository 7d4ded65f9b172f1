"""The native kernels on tiny random models of every shape that they know."""

from collections.abc import Iterator
from itertools import pairwise
from math import prod

import numpy as np
import numpy.typing as npt
import pytest

from cutaway.executor.kv import KVStore
from cutaway.kernels import native
from cutaway.kernels.batch import RowSpan, TokenBatch
from cutaway.kernels.native import Floats
from cutaway.kernels.softmax import scan_row
from cutaway.models.config import LayerConfig, ModelConfig
from cutaway.models.native import NativeDecoder
from cutaway.models.rope import RopeConfig

HIDDEN, INTERMEDIATE, VOCAB = 96, 160, 203  # no multiples of 16 outputs but one, and a panel that is not full
NUM_TOKENS = 300  # more than a chunk of attention


class RandomWeights:
    """A ``WeightSource`` of random Q8_0 blocks and float vectors, for tensors of these shapes."""

    def __init__(self, shapes: dict[str, tuple[int, ...]]) -> None:
        self._shapes = shapes
        self._unread = dict.fromkeys(shapes)

    def __contains__(self, name: str) -> bool:
        return name in self._shapes

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._shapes[name]

    def storage(self, name: str) -> str:
        return "Q8_0" if len(self._shapes[name]) == 2 else "F32"

    def read_rows(self, name: str, shape: tuple[int, ...]) -> Iterator[npt.NDArray[np.uint8]]:
        assert shape == self._shapes[name]
        self._unread.pop(name)
        dice = np.random.default_rng(prod(shape))
        blocks = np.empty((shape[0], shape[1] // 32, 34), dtype=np.uint8)
        blocks[:, :, :2] = np.full((*blocks.shape[:2], 1), 3e-3, dtype=np.float16).view(np.uint8)
        blocks[:, :, 2:] = dice.integers(0, 256, (*blocks.shape[:2], 32))
        return iter([blocks.reshape(shape[0], -1)])

    def read_vector(self, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
        assert shape == self._shapes[name]
        self._unread.pop(name)
        return np.random.default_rng(len(name)).uniform(0.5, 1.5, shape).astype(np.float32)

    def unread(self) -> tuple[str, ...]:
        return tuple(self._unread)

    def close(self) -> None:
        """Nothing to give back."""


def make_config(head_dim: int, num_heads: int, num_kv_heads: int, window: int | None) -> ModelConfig:
    return ModelConfig(
        architecture="llama",
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=INTERMEDIATE,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        norm_eps=1e-5,
        attention_scale=head_dim**-0.5,
        context_length=1024,
        ropes=(RopeConfig(10_000.0),),
        layers=(LayerConfig(), LayerConfig(window)),
        tied=True,
    )


def make_weights(config: ModelConfig) -> RandomWeights:
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for index in range(len(config.layers)):
        prefix = f"model.layers.{index}."
        shapes |= {
            f"{prefix}self_attn.q_proj.weight": (config.query_size, HIDDEN),
            f"{prefix}self_attn.k_proj.weight": (config.kv_size, HIDDEN),
            f"{prefix}self_attn.v_proj.weight": (config.kv_size, HIDDEN),
            f"{prefix}self_attn.o_proj.weight": (HIDDEN, config.query_size),
            f"{prefix}mlp.gate_proj.weight": (INTERMEDIATE, HIDDEN),
            f"{prefix}mlp.up_proj.weight": (INTERMEDIATE, HIDDEN),
            f"{prefix}mlp.down_proj.weight": (HIDDEN, INTERMEDIATE),
            f"{prefix}input_layernorm.weight": (HIDDEN,),
            f"{prefix}post_attention_layernorm.weight": (HIDDEN,),
        }
    return RandomWeights(shapes)


def logits_of(
    config: ModelConfig, instruction_set: str, ends: list[int], num_threads: int = 2, block_size: int = 16
) -> Floats:
    """Logits after every token of a text that is read up to these places, [tokens, vocab]."""
    model = NativeDecoder(config, make_weights(config), instruction_set, num_threads)
    store = KVStore(config, 2, block_size, [NUM_TOKENS // block_size + 1] * len(config.windows))
    token_ids = np.random.default_rng(1).integers(0, VOCAB, NUM_TOKENS)
    logits = []
    for start, end in pairwise([0, *ends]):
        slots = [layout.slots(range(layout.num_blocks))[:end] for layout in store.layouts]
        groups = tuple((RowSpan(0, end - start, start, of_group),) for of_group in slots)
        batch = TokenBatch(token_ids[start:end], np.arange(start, end), groups)
        logits.append(model.compute(batch, store.layers, range(end - start)))
        for row, scan in zip(logits[-1], model.scan(logits[-1]), strict=True):
            assert scan == scan_row(row)
    return np.concatenate(logits)


@pytest.mark.parametrize(("num_heads", "num_kv_heads", "window"), [(4, 4, None), (6, 2, 40), (20, 1, 20)])
@pytest.mark.parametrize("head_dim", native.HEAD_DIMS)
def test_sets_and_pieces_and_threads_and_blocks_give_the_same_bits(
    head_dim: int, num_heads: int, num_kv_heads: int, window: int | None
) -> None:
    config = make_config(head_dim, num_heads, num_kv_heads, window)
    whole = {name: logits_of(config, name, [NUM_TOKENS]) for name in native.instruction_sets()}
    assert np.isfinite(whole["portable"]).all()
    for name, logits in whole.items():
        ends = [1, 9, 10, 27, 200, 201, 298, NUM_TOKENS]
        assert np.array_equal(logits_of(config, name, ends, num_threads=3, block_size=48), logits), name
        if name == "amx" and head_dim % 32 == 0:  # its attention rounds queries and weights to bfloat16
            error = np.abs(logits - whole["portable"]) / whole["portable"].std()
            assert error.mean() < 0.05
            assert error.max() < 0.5
        else:
            assert np.array_equal(logits, whole["portable"]), name


@pytest.mark.parametrize("instruction_set", native.instruction_sets())
def test_a_long_answer_goes_on_alone_as_beside_others(instruction_set: str) -> None:
    """Alone, threads may divide what a row sees between them; beside others each has rows of its own."""
    config, length, num_requests = make_config(64, 6, 2, None), 600, 10
    model = NativeDecoder(config, make_weights(config), instruction_set, 2)
    store = KVStore(config, 2, 16, [-(-length // 16) * num_requests])
    (layout,) = store.layouts
    slots = [layout.slots(range(first, layout.num_blocks, num_requests))[:length] for first in range(num_requests)]
    dice = np.random.default_rng(5)
    for layer in store.layers:
        for numbers in (layer.key, layer.value):
            random = dice.standard_normal((num_requests * length, *numbers.shape[1:]), dtype=np.float32)
            numbers[np.concatenate(slots)] = (random.view(np.uint32) >> 16).astype(np.uint16)

    def compute(num_rows: int) -> Floats:
        spans = tuple(RowSpan(row, 1, length - 1, slots[row]) for row in range(num_rows))
        batch = TokenBatch(np.arange(num_rows), np.full(num_rows, length - 1), (spans,))
        return model.compute(batch, store.layers, [0])

    assert np.array_equal(compute(num_requests), compute(1))
