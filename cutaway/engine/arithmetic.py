"""With what a model is computed: what an engine asks of either kind of kernels before it builds the model."""

from collections.abc import Callable
from dataclasses import dataclass

from cutaway.executor.model import Model
from cutaway.weights.source import WeightSource

# Bytes of a number of the dtypes that there are.
NUMBER_BYTES = {"bfloat16": 2, "float32": 4}


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """A choice of kernels and dtype for one model.

    Attributes:
        kernels: their name.
        dtype: of the cache, a key of ``NUMBER_BYTES``.
        weight_bytes: what the weights take.
        why_reference: why it is not that of the native kernels, if it is not.
        build: reads the weights; takes the number of threads.
    """

    kernels: str
    dtype: str
    weight_bytes: int
    build: Callable[[WeightSource, int], Model]
    why_reference: str | None = None
