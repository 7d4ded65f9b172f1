"""Matrix products and lookups with weights from a checkpoint."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cutaway.kernels import reference as kernels
from cutaway.weights.decoded import DecodedWeights


class Linear(nn.Module):
    """``y = x Wᵀ + b`` for each row; ``weight`` is [out, in], ``bias`` [out] or ``None``."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.weight = weight
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        """[rows, in] to [rows, out]."""
        return kernels.linear(x, self.weight, self.bias)


class Embedding(nn.Module):
    """The vector of each token: ``weight`` is [vocab, hidden]; vectors are multiplied with ``scale``."""

    def __init__(self, weight: Tensor, scale: float = 1.0) -> None:
        super().__init__()
        self.weight = weight
        self.scale = scale

    def forward(self, token_ids: Tensor) -> Tensor:
        """[rows] to [rows, hidden]."""
        vectors = self.weight.index_select(0, token_ids)
        return vectors if self.scale == 1.0 else vectors * self.scale


class RMSNorm(nn.Module):
    """Scales to unit root mean square; ``weight`` is float32 [width]."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        super().__init__()
        self.weight = weight
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """[..., width] to the same shape."""
        return kernels.rms_norm(x, self.weight, self.eps)


def load_matrix(
    weights: DecodedWeights, names: Sequence[str], heights: Sequence[int], width: int, dtype: torch.dtype
) -> Tensor:
    """Read matrices of one width into one, the rows of the first on top; [sum of heights, width].

    Raises:
        MissingTensor: one of ``names`` is not in the checkpoint.
        WrongShape: one is not [height, width].
    """
    matrix = torch.empty(sum(heights), width, dtype=dtype)
    for name, rows in zip(names, torch.split(matrix, list(heights)), strict=True):
        weights.read_into(name, rows)
    return matrix


def load_vector(weights: DecodedWeights, names: Sequence[str], lengths: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Read vectors into one, end to end; raises as ``load_matrix``."""
    vector = torch.empty(sum(lengths), dtype=dtype)
    for name, part in zip(names, torch.split(vector, list(lengths)), strict=True):
        weights.read_into(name, part)
    return vector


def load_norm(weights: DecodedWeights, name: str, width: int, eps: float) -> RMSNorm:
    """Read a norm's factor; raises as ``load_matrix``."""
    return RMSNorm(load_vector(weights, [name], [width], torch.float32), eps)
