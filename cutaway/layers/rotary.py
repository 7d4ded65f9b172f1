"""Rotary position embedding: which angle a position turns each pair of channels by."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cutaway.kernels import reference as kernels


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How Llama 3 stretches its frequencies to a longer context.

    Wavelengths shorter than ``original_context / high_freq_factor`` stay, those longer than
    ``original_context / low_freq_factor`` are stretched by ``factor``, and those between are blended.
    Source: the rope scaling of Meta's Llama 3.1 reference code, as in transformers' ``rope_type: llama3``.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary frequencies of a kind of layer.

    Attributes:
        theta: base of the frequencies.
        linear_factor: positions are divided by it.
        llama3: Llama 3's stretching, if the checkpoint states it in numbers.
    """

    theta: float
    linear_factor: float = 1.0
    llama3: RopeScaling | None = None


def inverse_frequencies(rope: RopeConfig, head_dim: int, divisors: Tensor | None = None) -> Tensor:
    """Angle per position of each channel pair, float32 [head_dim / 2].

    Args:
        rope: base and scaling.
        head_dim: channels of a head.
        divisors: [head_dim / 2], Llama 3's stretching as GGUF files carry it (``rope_freqs.weight``).
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    frequencies = 1.0 / (rope.theta**exponents) / rope.linear_factor
    if divisors is not None:
        return frequencies / divisors
    return frequencies if rope.llama3 is None else _stretch(frequencies, rope.llama3)


def _stretch(frequencies: Tensor, scaling: RopeScaling) -> Tensor:
    wavelengths = 2 * math.pi / frequencies
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    blend = (scaling.original_context / wavelengths - low) / (high - low)
    blend = blend.clamp(0.0, 1.0)  # 0: stretched in full, 1: kept
    return (1 - blend) * frequencies / scaling.factor + blend * frequencies


class Rotary(nn.Module):
    """Cosine and sine of the angles of a batch's positions, computed once a step for all layers of a kind."""

    def __init__(self, frequencies: Tensor) -> None:
        super().__init__()
        self.frequencies = frequencies

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """[rows] to cosine and sine as ``kernels.rotate`` takes them, float32 [rows, 1, head_dim] each."""
        return kernels.rotary_angles(positions, self.frequencies)
