"""The feed-forward half of a transformer layer."""

from collections.abc import Callable

from torch import Tensor, nn

from cutaway.layers.linear import Linear


class GatedMLP(nn.Module):
    """A gated feed-forward network (Shazeer, "GLU Variants Improve Transformer", 2020).

    Args:
        gate_up: hidden to gate and up, one after another.
        down: back to hidden.
        activate_and_multiply: ``[rows, 2 * width] -> [rows, width]``: SwiGLU's or GeGLU's product.
    """

    def __init__(self, gate_up: Linear, down: Linear, activate_and_multiply: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.gate_up = gate_up
        self.down = down
        self.activate_and_multiply = activate_and_multiply

    def forward(self, x: Tensor) -> Tensor:
        """[rows, hidden] to the same shape."""
        down: Tensor = self.down(self.activate_and_multiply(self.gate_up(x)))
        return down
