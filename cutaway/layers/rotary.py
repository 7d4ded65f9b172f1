"""Rotary position embedding."""

from torch import Tensor, nn

from cutaway.kernels import reference as kernels


class Rotary(nn.Module):
    """Cosine and sine of the angles of a batch's positions, computed once a step for all layers of a kind.

    Args:
        frequencies: float32 [head_dim / 2], the angle per position of each pair of channels.
    """

    def __init__(self, frequencies: Tensor) -> None:
        super().__init__()
        self.frequencies = frequencies

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """[rows] to cosine and sine as ``kernels.rotate`` takes them, float32 [rows, 1, head_dim] each."""
        return kernels.rotary_angles(positions, self.frequencies)
