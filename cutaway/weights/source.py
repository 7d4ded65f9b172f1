"""What a model needs from a checkpoint, whatever its file format: named tensors in one convention.

The convention is that of Hugging Face checkpoints, so that the names can be looked up anywhere:
``model.embed_tokens.weight``, ``model.layers.3.self_attn.q_proj.weight``, ``model.norm.weight``,
``lm_head.weight`` (absent when tied to the embedding). Beyond names, every source delivers

- query and key rows in half-split order (the two halves of a head rotate together), which GGUF files of
  architecture ``llama`` do not store;
- norm weights as the factor that multiplies, also for Gemma, whose safetensors store the factor minus one;
- ``rope_freqs.weight``, the divisors of Llama 3's rotary frequencies, where the checkpoint has them.

Matrices come as they are stored; ``cutaway.weights.decoded`` makes tensors of torch from them.
"""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Vector = npt.NDArray[np.float32]


class WeightSource(Protocol):
    """Named tensors of one checkpoint. Reading is lazy: nothing is touched before it is asked for."""

    def __contains__(self, name: str) -> bool:
        """Whether the checkpoint has the tensor."""
        ...

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of all tensors, in file order."""
        ...

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of the tensor, output dimension first.

        Raises:
            MissingTensor: the checkpoint has no such tensor.
        """
        ...

    def storage(self, name: str) -> str:
        """Name of the stored type, as its file format spells it: ``Q4_1``, ``BF16``.

        Raises:
            MissingTensor: the checkpoint has no such tensor.
        """
        ...

    def read_rows(self, name: str, shape: tuple[int, ...]) -> Iterator[Bytes]:
        """The rows of a tensor of two or more dimensions as they are stored, in order, some megabytes at a time.

        Rows of ``shape[-1]`` numbers; for their type see ``storage``. A piece must not be used once the next one is
        asked for: its memory is given back.

        Returns:
            pieces, uint8 [rows, bytes of a row], read-only.

        Raises:
            MissingTensor: the checkpoint has no such tensor.
            WrongShape: it has another shape; both are named.
        """
        ...

    def read_vector(self, name: str, shape: tuple[int, ...]) -> Vector:
        """The numbers of a tensor of at most one dimension, float32, of ``shape``.

        Raises:
            MissingTensor: the checkpoint has no such tensor.
            WrongShape: it has another shape; both are named.
            UnsupportedModel: the stored type cannot be decoded; it is named.
        """
        ...

    def unread(self) -> tuple[str, ...]:
        """Names of the tensors that nobody has asked to read yet, in file order."""
        ...

    def close(self) -> None:
        """Give the files back; no tensor can be read afterwards."""
        ...
