"""A ``WeightSource`` whose tensors are in memory: the fake for tests of models.

Owns nothing but the arrays that it was given, which are in the convention already.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from cutaway.errors import MissingTensor, WrongShape
from cutaway.quant.vectors import decode_vector
from cutaway.weights.source import Bytes, Vector

_STORAGE = {"float32": "F32", "float16": "F16", "uint16": "BF16"}

Array = np.ndarray[Any, Any]


class DictSource:
    """Implements ``WeightSource`` for ``arrays``, by canonical name: float32, float16, or bfloat16 as uint16."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._arrays = dict(arrays)
        self._read: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def shape(self, name: str) -> tuple[int, ...]:
        """See ``WeightSource.shape``."""
        shape: tuple[int, ...] = self._array(name).shape
        return shape

    def storage(self, name: str) -> str:
        """See ``WeightSource.storage``."""
        return _STORAGE[self._array(name).dtype.name]

    def read_rows(self, name: str, shape: tuple[int, ...]) -> Iterator[Bytes]:
        """See ``WeightSource.read_rows``."""
        array = self._array(name, shape)
        self._read.add(name)
        return iter([array.reshape(-1, shape[-1]).view(np.uint8)])

    def read_vector(self, name: str, shape: tuple[int, ...]) -> Vector:
        """See ``WeightSource.read_vector``."""
        array = self._array(name, shape)
        decoded = decode_vector(array.reshape(-1).view(np.uint8), self.storage(name))
        assert decoded is not None, "all that is accepted can be decoded"
        self._read.add(name)
        return decoded.reshape(shape)

    def unread(self) -> tuple[str, ...]:
        """See ``WeightSource.unread``."""
        return tuple(name for name in self._arrays if name not in self._read)

    def close(self) -> None:
        """See ``WeightSource.close``."""
        self._arrays = {}

    def _array(self, name: str, shape: tuple[int, ...] | None = None) -> Array:
        array = self._arrays.get(name)
        if array is None:
            raise MissingTensor(f"there is no tensor {name!r} among the {len(self._arrays):,} tensors")
        if shape is not None and shape != array.shape:
            raise WrongShape(f"tensor {name!r} has shape {list(array.shape)}, but {list(shape)} is needed")
        return array
