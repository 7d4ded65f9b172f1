"""Opens the tensors of a Hugging Face style folder as a ``WeightSource``.

Owns what safetensors checkpoints do differently from the common convention: the norms of Gemma. Refuses to know the
file format, which belongs to ``safetensors_header``.
"""

from collections.abc import Callable, Sequence

from torch import Tensor

from cutaway.weights.mapped_source import Entry, MappedSource, as_stored
from cutaway.weights.tensor_file import TensorFile

_NORMS_MINUS_ONE = frozenset({"gemma3_text"})


def open_safetensors(files: Sequence[TensorFile], architecture: str) -> MappedSource:
    """Open the tensors of a model of ``architecture`` (``model_type``), given the headers of all its files.

    Raises:
        ModelError: a file cannot be read any longer.
    """
    return MappedSource(
        {
            tensor.name: Entry(file, tensor, _arrangement(architecture, tensor.name))
            for file in files
            for tensor in file.tensors
        }
    )


def factor_from_difference(rows: Tensor) -> Tensor:
    """Turn the weights of a Gemma norm, stored as the difference from one, into factors."""
    return rows + 1.0


def _arrangement(architecture: str, name: str) -> Callable[[Tensor], Tensor]:
    if architecture in _NORMS_MINUS_ONE and name.endswith("norm.weight"):
        return factor_from_difference
    return as_stored
