"""A decoder whose forward pass is one call into the native kernels."""

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_void_p
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from cutaway.kernels import native
from cutaway.kernels.batch import LayerStore, TokenBatch
from cutaway.kernels.native import Floats, address
from cutaway.kernels.softmax import RowScan, to_row_scan
from cutaway.models.config import LayerConfig, ModelConfig
from cutaway.models.reading import refuse_unread, rope_frequencies
from cutaway.models.registry import read_config
from cutaway.weights.checkpoint import Checkpoint
from cutaway.weights.source import Bytes, WeightSource

_ACTIVATIONS = {"silu": 0, "gelu": 1}


@dataclass(frozen=True, slots=True)
class _Extras:
    """What the layers of an architecture have beyond matrices and two norms: biases, norms of heads and of results."""

    qkv_bias: bool = False
    head_norms: bool = False
    post_norms: bool = False


# The architectures whose computation the native kernels know.
_EXTRAS: Mapping[str, _Extras] = {
    "gemma3": _Extras(head_norms=True, post_norms=True),
    "gemma3_text": _Extras(head_norms=True, post_norms=True),
    "llama": _Extras(),
    "mistral": _Extras(),
    "qwen2": _Extras(qkv_bias=True),
    "qwen3": _Extras(head_norms=True),
}


def why_not_native(config: ModelConfig, weights: WeightSource) -> str | None:
    """Why the native kernels cannot run a model, or ``None`` if they can."""
    if (absence := native.why_absent()) is not None:
        return f"they are {absence}"
    if config.architecture not in _EXTRAS:
        return f"architecture {config.architecture!r}"
    if config.head_dim not in native.HEAD_DIMS:
        return f"heads of {config.head_dim} channels"
    if config.num_heads // config.num_kv_heads > native.MAX_SHARING:
        return f"{config.num_heads // config.num_kv_heads} query heads share a key-value head"
    for width in (config.hidden_size, config.query_size, config.intermediate_size):
        if width % native.GROUP:
            return f"rows of {width:,} numbers, no multiple of {native.GROUP}"
    for name in weights:
        if len(weights.shape(name)) == 2 and weights.storage(name) not in native.PACKED_TYPES:
            return f"weights of type {weights.storage(name)}"
    return None


def native_bytes(weights: WeightSource) -> int:
    """Memory that the weights take once they are packed."""
    num_bytes = 0
    for name in weights:
        shape = weights.shape(name)
        is_matrix = len(shape) == 2
        size = native.packed_bytes(weights.storage(name), *shape) if is_matrix else 4 * prod(shape)
        num_bytes += native.aligned(size)
    return num_bytes


def load_native(checkpoint: Checkpoint, instruction_set: str, num_threads: int) -> "NativeDecoder":
    """Read the config and the weights of a checkpoint; see ``why_not_native``.

    Raises:
        ModelError: the files are at fault, or ask for what is not supported.
    """
    weights = checkpoint.weights()
    try:
        return NativeDecoder(read_config(checkpoint, weights), weights, instruction_set, num_threads)
    finally:
        weights.close()


class NativeDecoder:
    """What ``Decoder`` is, on weights that stay quantized, in 4 or 8 bits. The cache is bfloat16.

    Args:
        config: its numbers.
        weights: of a GGUF file; see ``why_not_native``.
        instruction_set: one of ``native.instruction_sets()``, or ``native.fast_set()``.
        num_threads: threads of the kernels' own, and of packing.
    """

    cache_block = native.CACHE_BLOCK

    def __init__(self, config: ModelConfig, weights: WeightSource, instruction_set: str, num_threads: int) -> None:
        self.config = config
        room = _Room(config, weights)
        frequencies = rope_frequencies(config, weights)
        layers = (native.LayerWeights * len(config.layers))(*map(room.layer, range(len(config.layers)), config.layers))
        embedding = room.matrix("model.embed_tokens.weight", config.vocab_size, config.hidden_size)
        head = embedding
        if not config.tied:
            head = room.matrix("lm_head.weight", config.vocab_size, config.hidden_size)
        norm = room.vector(["model.norm.weight"], [config.hidden_size])
        refuse_unread(config, weights)
        room.fill(num_threads)
        self._kept = (room.arena, frequencies)  # what the library has pointers to
        numbers = native.DecoderConfig(
            config.hidden_size,
            config.intermediate_size,
            config.num_heads,
            config.num_kv_heads,
            config.head_dim,
            _ACTIVATIONS[config.activation],
            config.norm_eps,
            config.attention_scale,
            config.embedding_scale,
        )
        library = native.library()
        assert library is not None, "why_not_native was asked"
        self._library = library
        self._decoder = library.cutaway_decoder_new(
            ctypes.byref(numbers),
            layers,
            len(layers),
            ctypes.byref(embedding.matrix),
            ctypes.byref(native.product([head])),
            norm,
            _pointers(frequencies),
            len(frequencies),
            instruction_set.encode(),
            num_threads,
        )
        if not self._decoder:
            raise MemoryError("the threads of the native kernels cannot be started")

        self._cache: Sequence[LayerStore] = ()
        self._cache_pointers = _pointers(())

    def __del__(self) -> None:
        """Give the threads back."""
        if getattr(self, "_decoder", None):
            self._library.cutaway_decoder_free(self._decoder)

    def compute(self, batch: TokenBatch, cache: Sequence[LayerStore], sampled: Sequence[int]) -> Floats:
        """See ``executor.model.Model``.

        Raises:
            IndexError: a token id is none of the model's.
            MemoryError: there is none for the step.
        """
        hidden = self._forward(batch, cache)[np.asarray(sampled, dtype=np.int64)]  # [samples, hidden]
        scores = np.empty((len(hidden), self.config.vocab_size), dtype=np.float32)
        if len(hidden):
            rows, out = address(hidden), address(scores)
            self._check(self._library.cutaway_decoder_logits(self._decoder, rows, len(hidden), out))
        return scores

    def scan(self, logits: Floats) -> list[RowScan]:
        """See ``executor.model.Model``; each thread scans a part of every row."""
        found = (native.RowScan * len(logits))()
        if len(logits):
            self._check(self._library.cutaway_decoder_scan(self._decoder, address(logits), len(logits), found))
        return [to_row_scan(each) for each in found]

    def _forward(self, batch: TokenBatch, cache: Sequence[LayerStore]) -> Floats:
        """Hidden states after the last norm, [rows, hidden]."""
        if not 0 <= batch.token_ids.min() <= batch.token_ids.max() < self.config.vocab_size:
            raise IndexError(f"a token id is outside of the model's {self.config.vocab_size:,}")
        if cache is not self._cache:
            self._cache, self._cache_pointers = cache, _pointers([layer.key for layer in cache])
        spans = [native.Span(span.first_row, span.num_rows, span.start) for span in batch.groups[0]]
        arrays: list[ctypes.Array[Any]] = [
            (native.Span * len(spans))(*spans),
            _pointers([span.slots for group in batch.groups for span in group]),
            self._cache_pointers,
        ]
        num_rows = len(batch.token_ids)
        hidden = np.empty((num_rows, self.config.hidden_size), dtype=np.float32)
        rows, slots, caches = map(ctypes.addressof, arrays)
        sizes = len(batch.groups), cache[0].block_size
        step = native.Batch(num_rows, len(spans), address(batch.token_ids), rows, slots, *sizes, caches)
        self._check(self._library.cutaway_decoder_forward(self._decoder, ctypes.byref(step), address(hidden)))
        return hidden

    def _check(self, code: int) -> None:
        if code:
            raise MemoryError("there is no memory for this step")


class _Room:
    """The weights of a decoder in one arena, in the order in which a forward pass reads them.

    Vectors are read at once; matrices get their places, and are read when all have one.
    """

    def __init__(self, config: ModelConfig, weights: WeightSource) -> None:
        self.arena = native.Arena(native_bytes(weights))
        self._config = config
        self._weights = weights
        self._unpacked: list[tuple[native.PackedMatrix, Iterator[Bytes]]] = []

    def layer(self, index: int, kind: LayerConfig) -> native.LayerWeights:
        """The weights of a layer."""
        config, prefix = self._config, f"model.layers.{index}."
        hidden, queries, keys = config.hidden_size, config.query_size, config.kv_size
        extras = _EXTRAS[config.architecture]
        # Without norms of results, that of the attention's is the name of the one before the feed-forward network.
        before_mlp = "pre_feedforward_layernorm" if extras.post_norms else "post_attention_layernorm"
        biases = [f"{prefix}self_attn.{part}_proj.bias" for part in "qkv"]
        return native.LayerWeights(
            qkv=self._product(
                [f"{prefix}self_attn.{part}_proj.weight" for part in "qkv"], [queries, keys, keys], hidden
            ),
            output=self._product([f"{prefix}self_attn.o_proj.weight"], [hidden], queries),
            gate=self._product([f"{prefix}mlp.gate_proj.weight"], [config.intermediate_size], hidden),
            up=self._product([f"{prefix}mlp.up_proj.weight"], [config.intermediate_size], hidden),
            down=self._product([f"{prefix}mlp.down_proj.weight"], [hidden], config.intermediate_size),
            attention_norm=self._norm(f"{prefix}input_layernorm", hidden),
            attention_post_norm=self._norm(f"{prefix}post_attention_layernorm", hidden) if extras.post_norms else None,
            mlp_norm=self._norm(f"{prefix}{before_mlp}", hidden),
            mlp_post_norm=self._norm(f"{prefix}post_feedforward_layernorm", hidden) if extras.post_norms else None,
            qkv_bias=self.vector(biases, [queries, keys, keys]) if extras.qkv_bias else None,
            query_norm=self._norm(f"{prefix}self_attn.q_norm", config.head_dim) if extras.head_norms else None,
            key_norm=self._norm(f"{prefix}self_attn.k_norm", config.head_dim) if extras.head_norms else None,
            rope=kind.rope,
            group=config.windows.index(kind.window),
            window=kind.window or 0,
        )

    def matrix(self, name: str, rows: int, cols: int) -> native.PackedMatrix:
        """The place of a matrix."""
        pieces = self._weights.read_rows(name, (rows, cols))
        packed = native.PackedMatrix(self.arena, self._weights.storage(name), rows, cols)
        self._unpacked.append((packed, pieces))
        return packed

    def vector(self, names: Sequence[str], lengths: Sequence[int]) -> int:
        """Where vectors of the checkpoint lie, end to end, as float32."""
        room = self.arena.take(4 * sum(lengths)).view(np.float32)
        parts = [self._weights.read_vector(name, (length,)) for name, length in zip(names, lengths, strict=True)]
        np.concatenate(parts, out=room)
        return address(room)

    def fill(self, num_threads: int) -> None:
        """Pack all matrices."""
        with ThreadPoolExecutor(num_threads, thread_name_prefix="pack") as pool:
            for _ in pool.map(lambda task: _pack(*task), self._unpacked):
                pass

    def _product(self, names: Sequence[str], heights: Sequence[int], cols: int) -> native.Product:
        return native.product([self.matrix(name, rows, cols) for name, rows in zip(names, heights, strict=True)])

    def _norm(self, name: str, length: int) -> int:
        return self.vector([f"{name}.weight"], [length])


def _pack(matrix: native.PackedMatrix, pieces: Iterator[Bytes]) -> None:
    first = 0
    for piece in pieces:
        matrix.pack(piece, first)
        first += len(piece)


def _pointers(arrays: Sequence[np.ndarray[Any, Any]]) -> ctypes.Array[c_void_p]:
    return (c_void_p * len(arrays))(*map(address, arrays))
