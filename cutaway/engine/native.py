"""The native kernels as an engine's arithmetic."""

from cutaway.engine.arithmetic import Arithmetic
from cutaway.engine.options import EngineOptions
from cutaway.errors import InvalidValue
from cutaway.kernels import native
from cutaway.models.config import ModelConfig
from cutaway.models.native import NativeDecoder, native_bytes, why_not_native
from cutaway.weights.source import WeightSource


def choose_native(config: ModelConfig, weights: WeightSource, options: EngineOptions) -> str | None:
    """Why options mean other kernels than the native ones for a model, or ``None`` if they mean these.

    Raises:
        InvalidValue: they ask for native kernels or fast numerics, which cannot run the model.
    """
    reason = _why_reference(config, weights, options)
    if options.numerics == "fast":
        if reason is None and native.fast_set() is None:
            reason = "this processor, or the compiler that built them, has no AMX"
        if reason is not None:
            raise InvalidValue("numerics", f"fast ones are of native kernels: {reason}", hint="leave it out")
    if reason is not None and options.kernels == "native":
        raise InvalidValue("kernels", reason, hint="--kernels reference")
    return reason


def _why_reference(config: ModelConfig, weights: WeightSource, options: EngineOptions) -> str | None:
    if options.kernels == "reference":
        return "the reference kernels were asked for"
    if options.kernels == "auto" and options.dtype != "auto":
        return f"{options.dtype} was asked for, which only the reference kernels have a choice of"
    reason = why_not_native(config, weights)
    if reason is not None:
        return f"native kernels cannot run this model: {reason}"
    if options.block_size % native.CACHE_BLOCK:
        return f"native kernels need cache blocks of {native.CACHE_BLOCK} or a multiple, not {options.block_size}"
    return None


def native_arithmetic(config: ModelConfig, weights: WeightSource, numerics: str) -> Arithmetic:
    """The best that this processor has, for a model that ``choose_native`` chose them for."""
    fast = native.fast_set() if numerics == "fast" else None
    instruction_set = fast or native.instruction_sets()[0]

    def build(weights: WeightSource, num_threads: int) -> NativeDecoder:
        return NativeDecoder(config, weights, instruction_set, num_threads)

    return Arithmetic(f"native ({instruction_set})", "bfloat16", native_bytes(weights), build)
