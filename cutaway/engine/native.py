"""The native kernels as an engine's arithmetic."""

from cutaway.engine.arithmetic import Arithmetic
from cutaway.errors import InvalidValue
from cutaway.kernels import native
from cutaway.models.config import ModelConfig
from cutaway.models.native import NativeDecoder, native_bytes, why_not_native
from cutaway.weights.source import WeightSource


def native_arithmetic(config: ModelConfig, weights: WeightSource) -> Arithmetic:
    """The best that this processor has.

    Raises:
        InvalidValue: native kernels cannot run the model.
    """
    reason = why_not_native(config, weights)
    if reason is not None:
        raise InvalidValue("kernels", f"native kernels cannot run this model: {reason}", hint="--kernels reference")
    instruction_set = native.instruction_sets()[0]

    def build(weights: WeightSource, num_threads: int) -> NativeDecoder:
        return NativeDecoder(config, weights, instruction_set, num_threads)

    return Arithmetic(f"native ({instruction_set})", "bfloat16", native_bytes(weights), build)
