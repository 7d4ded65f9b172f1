"""The reference kernels as an engine's arithmetic: the one part of an engine that needs torch."""

from math import prod

import torch

from cutaway.engine.arithmetic import NUMBER_BYTES, Arithmetic
from cutaway.executor.torch_model import TorchModel
from cutaway.kernels import REFERENCE_KERNELS
from cutaway.models.build import read_decoder
from cutaway.models.config import ModelConfig
from cutaway.weights.source import WeightSource


def reference_arithmetic(config: ModelConfig, weights: WeightSource, dtype: str, reason: str) -> Arithmetic:
    """All weights decoded to ``dtype``, a key of ``NUMBER_BYTES``; ``reason`` says why not the native kernels."""

    def build(weights: WeightSource, num_threads: int) -> TorchModel:
        torch.set_num_threads(num_threads)
        return TorchModel(read_decoder(config, weights, getattr(torch, dtype)))

    num_weights = sum(prod(weights.shape(name)) for name in weights)
    return Arithmetic(REFERENCE_KERNELS, dtype, num_weights * NUMBER_BYTES[dtype], build, reason)
