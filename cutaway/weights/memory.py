"""A ``WeightSource`` whose tensors are in memory: the fake for tests of models.

Owns nothing but the tensors that it was given, which are in the convention already.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from cutaway.errors import MissingTensor, WrongShape

_STORAGE = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


class DictSource:
    """Implements ``WeightSource`` for ``tensors``, by canonical name; they are float32, float16 or bfloat16."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = dict(tensors)
        self._read: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """See ``WeightSource.shape``."""
        return tuple(self._tensor(name).shape)

    def storage(self, name: str) -> str:
        """See ``WeightSource.storage``."""
        return _STORAGE[self._tensor(name).dtype]

    @torch.inference_mode()
    def read_into(self, name: str, out: Tensor) -> None:
        """See ``WeightSource.read_into``."""
        tensor = self._tensor(name)
        if out.shape != tensor.shape:
            raise WrongShape(f"tensor {name!r} has shape {list(tensor.shape)}, but {list(out.shape)} is needed")
        out.copy_(tensor)
        self._read.add(name)

    def unread(self) -> tuple[str, ...]:
        """See ``WeightSource.unread``."""
        return tuple(name for name in self._tensors if name not in self._read)

    def close(self) -> None:
        """See ``WeightSource.close``."""
        self._tensors = {}

    def _tensor(self, name: str) -> Tensor:
        tensor = self._tensors.get(name)
        if tensor is None:
            raise MissingTensor(f"there is no tensor {name!r} among the {len(self._tensors):,} tensors")
        return tensor
