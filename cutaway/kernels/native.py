"""The native kernels, as Python sees them: a shared library that the package's build makes where there is a compiler.

Weights stay as they are in a GGUF file, regrouped so that one pass reads them in order; rows are quantized to 8 bits
in groups of 32, and products are sums of integers, exact in any order. So, as in ``reference``, **a row's result
depends on that row alone**, and every instruction set gives the same bits. Layout and arithmetic are in ``cpp/``.
"""

import ctypes
from collections.abc import Sequence
from ctypes import c_char_p, c_float, c_int32, c_int64, c_void_p
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

LIBRARY = Path(__file__).parent / "_native.so"

# Types of a GGUF file that can be packed, with ggml's numbers. All are exact, but for Q6_K, whose groups of 16 share a
# scale of finer steps with their neighbour.
PACKED_TYPES = {"Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14}
GROUP = 32
HEAD_DIMS = (32, 64, 80, 96, 128, 256)
MAX_SHARING = 64  # query heads of one key-value head
MAX_PARTS = 3


class Matrix(ctypes.Structure):
    """``Matrix`` of layout.h."""

    _fields_ = (("format", c_int32), ("rows", c_int32), ("cols", c_int32), ("unused", c_int32), ("data", c_void_p))


class Product(ctypes.Structure):
    """``Product`` of layout.h."""

    _fields_ = (("num_parts", c_int32), ("unused", c_int32), ("parts", Matrix * MAX_PARTS))


class DecoderConfig(ctypes.Structure):
    """``DecoderConfig`` of decoder.h."""

    _fields_ = (
        *((name, c_int32) for name in ("hidden_size", "intermediate_size", "num_heads", "num_kv_heads", "head_dim")),
        ("activation", c_int32),
        *((name, c_float) for name in ("norm_eps", "attention_scale", "embedding_scale")),
    )


class LayerWeights(ctypes.Structure):
    """``LayerWeights`` of decoder.h."""

    _fields_ = (
        *((name, Product) for name in ("qkv", "output", "gate_up", "down")),
        *((name, c_void_p) for name in ("attention_norm", "attention_post_norm", "mlp_norm", "mlp_post_norm")),
        *((name, c_void_p) for name in ("qkv_bias", "query_norm", "key_norm")),
        ("rope", c_int32),
        ("group", c_int32),
        ("window", c_int64),
    )


class Span(ctypes.Structure):
    """``Span`` of decoder.h."""

    _fields_ = (("first_row", c_int64), ("num_rows", c_int64), ("start", c_int64))


class CachePointers(ctypes.Structure):
    """``LayerCache`` of decoder.h."""

    _fields_ = (("keys", c_void_p), ("values", c_void_p))


class Batch(ctypes.Structure):
    """``Batch`` of decoder.h."""

    _fields_ = (
        ("num_rows", c_int64),
        ("num_spans", c_int64),
        *((name, c_void_p) for name in ("token_ids", "spans", "slots", "caches")),
    )


@cache
def library() -> ctypes.CDLL | None:
    """The library, or ``None`` where it was not built or cannot be loaded."""
    try:
        loaded = ctypes.CDLL(str(LIBRARY))
    except OSError:
        return None
    loaded.cutaway_instruction_set.restype = c_char_p
    loaded.cutaway_packed_bytes.restype = c_int64
    loaded.cutaway_packed_bytes.argtypes = (c_int32, c_int64, c_int64)
    loaded.cutaway_pack.argtypes = (c_int32, c_void_p, c_int64, c_int64, c_int64, c_void_p)
    loaded.cutaway_unpack_row.argtypes = (c_void_p, c_int64, c_void_p)
    loaded.cutaway_decoder_new.restype = c_void_p
    loaded.cutaway_decoder_new.argtypes = (
        *(c_void_p, c_void_p, c_int32),  # config, layers
        *(c_void_p, c_void_p, c_void_p),  # embedding, head, norm
        *(c_void_p, c_int32),  # frequencies
        *(c_char_p, c_int32),  # instruction set, threads
    )
    loaded.cutaway_decoder_free.argtypes = (c_void_p,)
    loaded.cutaway_decoder_forward.argtypes = (c_void_p, c_void_p, c_void_p)
    loaded.cutaway_decoder_logits.argtypes = (c_void_p, c_void_p, c_int64, c_void_p)
    return loaded


def instruction_sets() -> tuple[str, ...]:
    """The instruction sets that the library was built for and this processor has, best first; none without it."""
    loaded = library()
    if loaded is None:
        return ()
    names = iter(range(100))
    return tuple(name.decode() for name in iter(lambda: loaded.cutaway_instruction_set(next(names)), None))


def packed_bytes(type_name: str, rows: int, cols: int) -> int:
    """Bytes of a matrix of a stored type when it is packed."""
    loaded = library()
    assert loaded is not None, "there is a library"
    num_bytes: int = loaded.cutaway_packed_bytes(PACKED_TYPES[type_name], rows, cols)
    return num_bytes


class PackedMatrix:
    """A matrix of a GGUF file, regrouped.

    Args:
        stored: uint8 [rows, bytes of a row], as in the file.
        type_name: ggml's name of the type, one of ``PACKED_TYPES``.
        cols: numbers in a row, a multiple of 32.
    """

    def __init__(self, stored: Tensor, type_name: str, cols: int) -> None:
        loaded, number = library(), PACKED_TYPES[type_name]
        assert loaded is not None, "there is a library"
        self._data = torch.zeros(packed_bytes(type_name, len(stored), cols), dtype=torch.uint8)
        stored = stored.contiguous()
        loaded.cutaway_pack(number, stored.data_ptr(), len(stored), cols, 0, self._data.data_ptr())
        packed_format = loaded.cutaway_packed_format(number)
        self.matrix = Matrix(packed_format, len(stored), cols, 0, self._data.data_ptr())

    def row(self, index: int) -> Tensor:
        """The numbers of a row, float32 [cols]."""
        loaded = library()
        assert loaded is not None, "there is a library"
        numbers = torch.empty(self.matrix.cols)
        loaded.cutaway_unpack_row(ctypes.byref(self.matrix), index, numbers.data_ptr())
        return numbers


def product(matrices: Sequence[PackedMatrix]) -> Product:
    """Matrices of the same inputs, whose outputs follow each other."""
    parts = (Matrix * MAX_PARTS)(*(packed.matrix for packed in matrices))
    return Product(len(matrices), 0, parts)
