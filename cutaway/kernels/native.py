"""The native kernels, as Python sees them: a shared library that the package's build makes where there is a compiler.

Weights of a GGUF file are regrouped so that one pass reads them in order, Q4_1 in 4 bits and other types in 8; rows are
quantized to 8 bits in groups of 32, and products are sums of integers, exact in any order. So, as in ``reference``, **a
row's result depends on that row alone**, and every instruction set gives the same bits, all but AMX in attention, where
it rounds queries and weights to bfloat16. Only ``fast_set()`` gives that up, for the speed of bfloat16 products where
there are many rows. Layout and arithmetic are in ``cpp/``.
"""

import ctypes
from collections.abc import Sequence
from ctypes import c_char_p, c_double, c_float, c_int32, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cutaway.kernels.memory import Bytes, reserve
from cutaway.kernels.sources import digest

Floats = npt.NDArray[np.float32]

LIBRARY = Path(__file__).parent / "_native.so"

# Types of a GGUF file that can be packed, with ggml's numbers. All are exact, but for Q6_K, whose groups of 16 share a
# scale of finer steps with their neighbour.
PACKED_TYPES = {"Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14}
GROUP = 32
HEAD_DIMS = (32, 64, 80, 96, 128, 256)
MAX_SHARING = 64  # query heads of one key-value head
MAX_PARTS = 3
CACHE_BLOCK = 16  # positions whose keys and values are kept together
LINE = 64  # bytes of a cache line


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
        *((name, Product) for name in ("qkv", "output", "gate", "up", "down")),
        *((name, c_void_p) for name in ("attention_norm", "attention_post_norm", "mlp_norm", "mlp_post_norm")),
        *((name, c_void_p) for name in ("qkv_bias", "query_norm", "key_norm")),
        ("rope", c_int32),
        ("group", c_int32),
        ("window", c_int64),
    )


class Span(ctypes.Structure):
    """``Span`` of decoder.h."""

    _fields_ = (("first_row", c_int64), ("num_rows", c_int64), ("start", c_int64))


class RowScan(ctypes.Structure):
    """``RowScan`` of kernels.h."""

    _fields_ = (("best_id", c_int64), ("num_tokens", c_int64), ("num_bad", c_int64), ("exp_sum", c_double))


class Batch(ctypes.Structure):
    """``Batch`` of decoder.h."""

    _fields_ = (
        ("num_rows", c_int64),
        ("num_spans", c_int64),
        *((name, c_void_p) for name in ("token_ids", "spans", "slots")),
        ("num_groups", c_int64),
        ("block_size", c_int64),
        ("caches", c_void_p),
    )


@cache
def library() -> ctypes.CDLL | None:
    """The library, or ``None``: see ``why_absent``."""
    try:
        loaded = ctypes.CDLL(str(LIBRARY))
        loaded.cutaway_sources.restype = c_char_p
        if loaded.cutaway_sources() != digest().encode():
            return None
    except (OSError, AttributeError):
        return None
    loaded.cutaway_instruction_set.restype = c_char_p
    loaded.cutaway_fast_set.restype = c_char_p
    loaded.cutaway_packed_bytes.restype = c_int64
    loaded.cutaway_packed_bytes.argtypes = (c_int32, c_int64, c_int64)
    loaded.cutaway_pack.argtypes = (c_int32, c_void_p, c_int64, c_int64, c_int64, c_void_p)
    loaded.cutaway_unpack_row.argtypes = (c_void_p, c_int64, c_void_p)
    loaded.cutaway_exp_sum.restype = c_double
    loaded.cutaway_exp_sum.argtypes = (c_void_p, c_int64, c_float, c_double)
    loaded.cutaway_scan.argtypes = (c_void_p, c_int64, c_void_p)
    loaded.cutaway_decoder_scan.argtypes = (c_void_p, c_void_p, c_int64, c_void_p)
    loaded.cutaway_decoder_scan.restype = c_int32
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


def why_absent() -> str | None:
    """Why there is no library, or ``None`` if there is one."""
    if library() is not None:
        return None
    if not LIBRARY.exists():
        return "not built; that takes a C++ compiler when Cutaway is installed"
    return "built from other sources than these, or for another system; install Cutaway again"


def instruction_sets() -> tuple[str, ...]:
    """The instruction sets that the library was built for and this processor has, best first; none without it."""
    loaded = library()
    if loaded is None:
        return ()
    names = iter(range(100))
    return tuple(name.decode() for name in iter(lambda: loaded.cutaway_instruction_set(next(names)), None))


def fast_set() -> str | None:
    """The set of kernels for ``fast`` numerics, or ``None`` if this processor or the library has none."""
    loaded = library()
    name: bytes | None = loaded.cutaway_fast_set() if loaded is not None else None
    return name.decode() if name is not None else None


def packed_bytes(type_name: str, rows: int, cols: int) -> int:
    """Bytes of a matrix of a stored type when it is packed."""
    num_bytes: int = _loaded().cutaway_packed_bytes(PACKED_TYPES[type_name], rows, cols)
    return num_bytes


def aligned(num_bytes: int) -> int:
    """What ``Arena.take`` needs for so many bytes."""
    return -(-num_bytes // LINE) * LINE


class Arena:
    """Memory for the weights of a model, in one piece.

    Args:
        num_bytes: all that will be taken; what never is costs addresses only.
    """

    def __init__(self, num_bytes: int) -> None:
        self._bytes = reserve(num_bytes)
        self._num_taken = 0

    def take(self, num_bytes: int) -> Bytes:
        """The next bytes, from the next cache line on, uint8 [num_bytes]."""
        first, self._num_taken = self._num_taken, self._num_taken + aligned(num_bytes)
        assert self._num_taken <= len(self._bytes), "the arena was made for everything that is taken"
        return self._bytes[first : first + num_bytes]


class PackedMatrix:
    """A matrix of a GGUF file, regrouped; zeros until it is packed.

    Args:
        arena: where it lies.
        type_name: ggml's name of the type, one of ``PACKED_TYPES``.
        rows: its height.
        cols: numbers in a row, a multiple of 32.
    """

    def __init__(self, arena: Arena, type_name: str, rows: int, cols: int) -> None:
        self._number = PACKED_TYPES[type_name]
        self._data = arena.take(packed_bytes(type_name, rows, cols))
        self.matrix = Matrix(_loaded().cutaway_packed_format(self._number), rows, cols, 0, address(self._data))

    def pack(self, stored: Bytes, first: int) -> None:
        """Take in the rows from ``first`` on, as in the file; threads may do so side by side, each with other rows.

        Args:
            stored: uint8 [rows, bytes of a row].
            first: index of the first of them.
        """
        stored = np.ascontiguousarray(stored)
        _loaded().cutaway_pack(self._number, address(stored), len(stored), self.matrix.cols, first, self.matrix.data)

    def row(self, index: int) -> Floats:
        """The numbers of a row, float32 [cols]."""
        numbers = np.empty(self.matrix.cols, dtype=np.float32)
        _loaded().cutaway_unpack_row(ctypes.byref(self.matrix), index, address(numbers))
        return numbers


def product(matrices: Sequence[PackedMatrix]) -> Product:
    """Matrices of the same inputs, whose outputs follow each other."""
    parts = (Matrix * MAX_PARTS)(*(packed.matrix for packed in matrices))
    return Product(len(matrices), 0, parts)


def address(array: np.ndarray[Any, Any]) -> int:
    """Where the numbers of an array begin."""
    place: int = array.__array_interface__["data"][0]  # a tenth of what array.ctypes costs
    return place


def _loaded() -> ctypes.CDLL:
    loaded = library()
    assert loaded is not None, "there is a library"
    return loaded
