"""Opens the tensors of a Hugging Face style folder as a ``WeightSource``.

Owns what safetensors checkpoints do differently from the common convention: the norms of Gemma. Refuses to know the
file format, which belongs to ``safetensors_header``.
"""

from collections.abc import Sequence

from cutaway.weights.mapped_source import Entry, MappedSource
from cutaway.weights.tensor_file import TensorFile

_NORMS_MINUS_ONE = frozenset({"gemma3_text"})


def open_safetensors(files: Sequence[TensorFile], architecture: str) -> MappedSource:
    """Open the tensors of a model of ``architecture`` (``model_type``), given the headers of all its files.

    Raises:
        ModelError: a file cannot be read any longer.
    """
    return MappedSource(
        {
            tensor.name: Entry(file, tensor, missing=_missing(architecture, tensor.name))
            for file in files
            for tensor in file.tensors
        }
    )


def _missing(architecture: str, name: str) -> float:
    """What makes factors of the weights of a Gemma norm, which are stored as the difference from one."""
    return 1.0 if architecture in _NORMS_MINUS_ONE and name.endswith("norm.weight") else 0.0
