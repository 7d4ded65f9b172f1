"""Rotary frequencies: which angle a position turns each pair of channels by."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Frequencies = npt.NDArray[np.float32]
Power = Callable[[float, Frequencies], Frequencies]


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


def exact_power(base: float, exponents: Frequencies) -> Frequencies:
    """The nearest float32 of a power."""
    return (base ** exponents.astype(np.float64)).astype(np.float32)


def inverse_frequencies(
    rope: RopeConfig, head_dim: int, divisors: Frequencies | None = None, power: Power = exact_power
) -> Frequencies:
    """Angle per position of each channel pair, float32 [head_dim / 2].

    Args:
        rope: base and scaling.
        head_dim: channels of a head.
        divisors: [head_dim / 2], Llama 3's stretching as GGUF files carry it (``rope_freqs.weight``).
        power: libraries differ in its last bit in float32, which shows in logits after some hundred positions.
    """
    exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    frequencies: Frequencies = np.float32(1) / power(rope.theta, exponents) / np.float32(rope.linear_factor)
    if divisors is not None:
        return frequencies / divisors
    return frequencies if rope.llama3 is None else _stretch(frequencies, rope.llama3)


def _stretch(frequencies: Frequencies, scaling: RopeScaling) -> Frequencies:
    wavelengths = 2 * math.pi / frequencies
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    blend = (scaling.original_context / wavelengths - low) / (high - low)
    blend = blend.clip(0.0, 1.0)  # 0: stretched in full, 1: kept
    stretched: Frequencies = ((1 - blend) * frequencies / scaling.factor + blend * frequencies).astype(np.float32)
    return stretched
