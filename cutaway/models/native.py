"""A decoder whose forward pass is one call into the native kernels."""

import ctypes
from collections.abc import Sequence
from ctypes import c_void_p
from typing import Any

import torch
from torch import Tensor

from cutaway.kernels import native
from cutaway.layers.batch import LayerCache, TokenBatch
from cutaway.layers.linear import load_vector
from cutaway.layers.rotary import inverse_frequencies
from cutaway.models.build import load_rope_divisors, refuse_unread
from cutaway.models.config import LayerConfig, ModelConfig
from cutaway.weights.source import WeightSource

_ACTIVATIONS = {"silu": 0, "gelu": 1}


def why_not_native(config: ModelConfig, weights: WeightSource) -> str | None:
    """Why the native kernels cannot run a model, or ``None`` if they can."""
    if not native.instruction_sets():
        return "they were not built"
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


class NativeDecoder:
    """What ``Decoder`` is, on weights that stay quantized. The cache is bfloat16.

    Args:
        config: its numbers.
        weights: of a GGUF file; see ``why_not_native``.
        instruction_set: one of ``native.instruction_sets()``.
        num_threads: threads of the kernels' own.
    """

    def __init__(self, config: ModelConfig, weights: WeightSource, instruction_set: str, num_threads: int) -> None:
        self.config = config
        self._kept: list[object] = []  # what the library has pointers to
        self._weights = weights
        divisors = load_rope_divisors(config, weights)
        frequencies = [inverse_frequencies(rope, config.head_dim, divisors).contiguous() for rope in config.ropes]
        self._kept.append(frequencies)
        layers = (native.LayerWeights * len(config.layers))(*map(self._layer, range(len(config.layers)), config.layers))
        embedding = self._packed("model.embed_tokens.weight", config.vocab_size, config.hidden_size)
        head = embedding
        if not config.tied:
            head = self._packed("lm_head.weight", config.vocab_size, config.hidden_size)
        norm = self._pointer(["model.norm.weight"], [config.hidden_size])
        refuse_unread(config, weights)
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
        del self._weights

    def __del__(self) -> None:
        """Give the threads back."""
        if getattr(self, "_decoder", None):
            self._library.cutaway_decoder_free(self._decoder)

    def __call__(self, batch: TokenBatch, caches: Sequence[LayerCache]) -> Tensor:
        """Hidden states after the last norm, float32 [rows, hidden]; stores keys and values of all rows in ``caches``.

        Raises:
            IndexError: a token id is none of the model's.
            MemoryError: there is none for the step.
        """
        num_rows = len(batch.token_ids)
        if not 0 <= int(batch.token_ids.min()) <= int(batch.token_ids.max()) < self.config.vocab_size:
            raise IndexError(f"a token id is outside of the model's {self.config.vocab_size:,}")
        spans = [native.Span(span.first_row, span.num_rows, span.start) for span in batch.groups[0].spans]
        slots = [span.slots for group in batch.groups for span in group.spans]
        pointers = [native.CachePointers(cache.key.data_ptr(), cache.value.data_ptr()) for cache in caches]
        arrays: list[ctypes.Array[Any]] = [
            (native.Span * len(spans))(*spans),
            _pointers(slots),
            (native.CachePointers * len(pointers))(*pointers),
        ]
        hidden = torch.empty(num_rows, self.config.hidden_size)
        step = native.Batch(
            num_rows, len(spans), batch.token_ids.data_ptr(), *(ctypes.addressof(each) for each in arrays)
        )
        self._check(self._library.cutaway_decoder_forward(self._decoder, ctypes.byref(step), hidden.data_ptr()))
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores of every token, float32 [rows, vocab], from hidden states [rows, hidden]; raises as a call."""
        hidden = hidden.contiguous()
        scores = torch.empty(len(hidden), self.config.vocab_size)
        rows, out = hidden.data_ptr(), scores.data_ptr()
        self._check(self._library.cutaway_decoder_logits(self._decoder, rows, len(hidden), out))
        return scores

    def _check(self, code: int) -> None:
        if code:
            raise MemoryError("there is no memory for this step")

    def _layer(self, index: int, kind: LayerConfig) -> native.LayerWeights:
        config, prefix = self.config, f"model.layers.{index}."
        hidden, queries, keys = config.hidden_size, config.query_size, config.kv_size
        has_post_norms = f"{prefix}pre_feedforward_layernorm.weight" in self._weights
        after_attention = f"{prefix}post_attention_layernorm.weight"
        before_mlp = f"{prefix}pre_feedforward_layernorm.weight" if has_post_norms else after_attention
        biases = [f"{prefix}self_attn.{part}_proj.bias" for part in "qkv"]
        return native.LayerWeights(
            qkv=self._product(
                [f"{prefix}self_attn.{part}_proj.weight" for part in "qkv"], [queries, keys, keys], hidden
            ),
            output=self._product([f"{prefix}self_attn.o_proj.weight"], [hidden], queries),
            gate_up=self._product(
                [f"{prefix}mlp.{part}_proj.weight" for part in ("gate", "up")], [config.intermediate_size] * 2, hidden
            ),
            down=self._product([f"{prefix}mlp.down_proj.weight"], [hidden], config.intermediate_size),
            attention_norm=self._pointer([f"{prefix}input_layernorm.weight"], [hidden]),
            attention_post_norm=self._optional([after_attention], [hidden]) if has_post_norms else None,
            mlp_norm=self._pointer([before_mlp], [hidden]),
            mlp_post_norm=self._optional([f"{prefix}post_feedforward_layernorm.weight"], [hidden]),
            qkv_bias=self._optional(biases, [queries, keys, keys]),
            query_norm=self._optional([f"{prefix}self_attn.q_norm.weight"], [config.head_dim]),
            key_norm=self._optional([f"{prefix}self_attn.k_norm.weight"], [config.head_dim]),
            rope=kind.rope,
            group=config.windows.index(kind.window),
            window=kind.window or 0,
        )

    def _packed(self, name: str, rows: int, cols: int) -> native.PackedMatrix:
        stored = self._weights.read_stored(name, (rows, cols))
        packed = native.PackedMatrix(stored, self._weights.storage(name), cols)
        self._kept.append(packed)
        return packed

    def _product(self, names: Sequence[str], heights: Sequence[int], cols: int) -> native.Product:
        return native.product([self._packed(name, rows, cols) for name, rows in zip(names, heights, strict=True)])

    def _pointer(self, names: Sequence[str], lengths: Sequence[int]) -> int:
        """Where vectors of the checkpoint lie, end to end, as float32."""
        vector = load_vector(self._weights, names, lengths, torch.float32)
        self._kept.append(vector)
        return vector.data_ptr()

    def _optional(self, names: Sequence[str], lengths: Sequence[int]) -> int | None:
        """As ``_pointer``; ``None`` if the architecture does not have them."""
        return self._pointer(names, lengths) if names[0] in self._weights else None


def _pointers(tensors: Sequence[Tensor]) -> ctypes.Array[c_void_p]:
    return (c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))
