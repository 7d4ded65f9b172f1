"""What the machine can do at most: how fast it reads memory and multiplies, measured with torch."""

import time
from collections.abc import Callable

import torch

from cutaway.benchmark.work import Ceiling

MEASURE_SECONDS = 0.7
ROW_WEIGHTS = 4096
MIN_READ_BYTES = 64 << 20
PRODUCT_SHAPE = (1024, 2048, 2048)  # rows, inputs, outputs


def measure_ceiling(num_threads: int, num_bytes: int, dtype: torch.dtype) -> Ceiling:
    """Measure both; takes about twice ``MEASURE_SECONDS`` where ``dtype`` is what the processor multiplies.

    Args:
        num_threads: to measure with; torch keeps this number.
        num_bytes: what is read again and again; as much as a model's step reads has the same help from caches.
        dtype: of the product.
    """
    num_bytes = max(num_bytes, MIN_READ_BYTES)
    return Ceiling(
        num_threads=num_threads,
        read_bytes=num_bytes,
        read_gb_per_second=measure_read_bandwidth(num_threads, num_bytes, MEASURE_SECONDS),
        arithmetic=f"torch {str(dtype).removeprefix('torch.')} product of {'x'.join(map(str, PRODUCT_SHAPE))}",
        gmac_per_second=measure_arithmetic(num_threads, dtype, MEASURE_SECONDS),
    )


def measure_read_bandwidth(num_threads: int, num_bytes: int, seconds: float) -> float:
    """Gigabytes a second at which a product of a matrix and a vector reads its matrix; the best try in that time."""
    torch.set_num_threads(num_threads)
    matrix = torch.ones(max(1, num_bytes // (4 * ROW_WEIGHTS)), ROW_WEIGHTS)  # float32
    vector = torch.ones(ROW_WEIGHTS)
    return matrix.nbytes / _best_seconds(lambda: torch.mv(matrix, vector), seconds) / 1e9


def measure_arithmetic(num_threads: int, dtype: torch.dtype, seconds: float) -> float:
    """Billions of MACs a second in a product of two matrices; the best try in that time."""
    torch.set_num_threads(num_threads)
    num_rows, num_inputs, num_outputs = PRODUCT_SHAPE
    left, right = torch.ones(num_rows, num_inputs, dtype=dtype), torch.ones(num_outputs, num_inputs, dtype=dtype)
    return num_rows * num_inputs * num_outputs / _best_seconds(lambda: torch.mm(left, right.T), seconds) / 1e9


def _best_seconds(work: Callable[[], object], seconds: float) -> float:
    best = float("inf")
    end = time.perf_counter() + seconds
    while best == float("inf") or time.perf_counter() < end:
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best
