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
    config: ModelConfig, instruction_set: str, ends: list[int], num_threads: int = 2
) -> npt.NDArray[np.float32]:
    """Logits after every token of a text that is read up to these places, [tokens, vocab]."""
    model = NativeDecoder(config, make_weights(config), instruction_set, num_threads)
    store = KVStore(config, 2, 16, [NUM_TOKENS // 16 + 1] * len(config.windows))
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
def test_sets_and_pieces_and_threads_give_the_same_bits(
    head_dim: int, num_heads: int, num_kv_heads: int, window: int | None
) -> None:
    config = make_config(head_dim, num_heads, num_kv_heads, window)
    whole = {name: logits_of(config, name, [NUM_TOKENS]) for name in native.instruction_sets()}
    assert np.isfinite(whole["portable"]).all()
    for name, logits in whole.items():
        pieces = logits_of(config, name, [1, 9, 10, 27, 200, 201, 298, NUM_TOKENS], num_threads=3)
        assert np.array_equal(pieces, logits), name
        if name == "amx" and head_dim % 32 == 0:  # its attention rounds queries and weights to bfloat16
            error = np.abs(logits - whole["portable"]) / whole["portable"].std()
            assert error.mean() < 0.05
            assert error.max() < 0.5
        else:
            assert np.array_equal(logits, whole["portable"]), name
