"""From a checkpoint to a running engine core: weights, cache, scheduler, runner."""

import errno
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from cutaway import __version__
from cutaway.engine.core import EngineCore
from cutaway.engine.memory import CachePlan, plan_cache
from cutaway.engine.options import EngineOptions
from cutaway.errors import CorruptFile, InvalidValue, OutOfMemory
from cutaway.executor.kv import KVStore, kv_groups
from cutaway.executor.torch_runner import TorchRunner
from cutaway.glass.receipt import ModelFacts
from cutaway.glass.recorder import Recorder
from cutaway.kernels import REFERENCE_KERNELS, native
from cutaway.machine import available_memory_bytes, read_cpu
from cutaway.models.config import ModelConfig
from cutaway.models.decoder import Decoder
from cutaway.models.native import NativeDecoder, why_not_native
from cutaway.models.registry import find_architecture, read_config
from cutaway.scheduler.plan import SchedulerLimits
from cutaway.scheduler.scheduler import Scheduler
from cutaway.text.tokenizer import Tokenizer
from cutaway.weights.checkpoint import Checkpoint
from cutaway.weights.source import WeightSource


def load_core(
    checkpoint: Checkpoint,
    name: str,
    tokenizer: Tokenizer,
    options: EngineOptions,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> EngineCore:
    """Load a model and put an engine around it.

    Raises:
        ModelError: the files are at fault.
        InvalidValue: ``options.context`` is more than the model was trained for, or than the cache holds.
        OutOfMemory: weights and cache do not fit.
    """
    with _naming_memory(checkpoint, options):
        return _load(checkpoint, name, tokenizer, options, clock)


@contextmanager
def _naming_memory(checkpoint: Checkpoint, options: EngineOptions) -> Iterator[None]:
    """Turn what torch and the system raise when memory runs out while loading into ``OutOfMemory``."""
    try:
        yield
    except (MemoryError, RuntimeError, OSError) as error:
        is_torch = isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
        is_system = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        if not (is_torch or is_system):
            raise
        raise OutOfMemory(
            f"loading {checkpoint.path.name}",
            checkpoint.num_weights * choose_dtype(options.dtype).itemsize,
            available_memory_bytes(),
            hint="that is what its weights take, without torch and the cache; a limit of the process may leave less "
            "than what is available; choose a smaller model, --dtype bfloat16 or a smaller --context",
        ) from None


def _load(
    checkpoint: Checkpoint, name: str, tokenizer: Tokenizer, options: EngineOptions, clock: Callable[[], int]
) -> EngineCore:
    num_threads = options.num_threads or read_cpu().num_usable_cores
    weights = checkpoint.weights()
    try:
        config = read_config(checkpoint, weights)
        if tokenizer.vocab_size > config.vocab_size:
            raise CorruptFile(
                f"{checkpoint.path}: the tokenizer has {tokenizer.vocab_size:,} tokens, "
                f"the model only {config.vocab_size:,}"
            )
        arithmetic = _choose_arithmetic(checkpoint, config, weights, options)
        dtype = arithmetic.dtype
        groups = kv_groups(config, dtype)
        cache = plan_cache(groups, config.context_length, arithmetic.weight_bytes, available_memory_bytes(), options)
        embedding_storage = weights.storage("model.embed_tokens.weight")
        model = arithmetic.build(config, weights, num_threads)
    finally:
        weights.close()
    limits = _limits(cache, options, f"{checkpoint.fingerprint} {dtype} {options.kernels}")
    store = KVStore(config, dtype, options.block_size, [group.num_blocks for group in cache.groups])
    facts = ModelFacts(
        name=name,
        architecture=checkpoint.architecture,
        quantization=checkpoint.quantization,
        dtype=str(dtype).removeprefix("torch."),
        kernels=arithmetic.kernels,
        num_threads=num_threads,
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        num_layers=len(config.layers),
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        context_length=cache.context,
        embedding_storage=embedding_storage,
        block_size=options.block_size,
        kv_bytes_per_token=sum(group.bytes_per_token for group in groups),
        cache_bytes=cache.num_bytes,
        cache_tokens=cache.num_tokens,
        cache_requests=cache.num_longest,
        fingerprint=checkpoint.fingerprint,
        version=__version__,
    )
    runner = TorchRunner(model, store, clock)
    return EngineCore(Scheduler(limits), runner, tokenizer, Recorder(facts, tokenizer), clock)


@dataclass(frozen=True, slots=True)
class _Arithmetic:
    """With what a model is computed.

    Attributes:
        kernels: their name.
        dtype: of the cache.
        weight_bytes: what the weights take.
        build: reads the weights; takes the number of threads.
    """

    kernels: str
    dtype: torch.dtype
    weight_bytes: int
    build: Callable[[ModelConfig, WeightSource, int], Decoder | NativeDecoder]


def _choose_arithmetic(
    checkpoint: Checkpoint, config: ModelConfig, weights: WeightSource, options: EngineOptions
) -> _Arithmetic:
    if options.kernels == "reference":
        dtype = choose_dtype(options.dtype)

        def build_reference(config: ModelConfig, weights: WeightSource, num_threads: int) -> Decoder:
            torch.set_num_threads(num_threads)
            return find_architecture(checkpoint).build(config, weights, dtype)

        return _Arithmetic(REFERENCE_KERNELS, dtype, checkpoint.num_weights * dtype.itemsize, build_reference)
    reason = why_not_native(config, weights)
    if reason is not None:
        raise InvalidValue("kernels", f"native kernels cannot run this model: {reason}", hint="--kernels reference")
    instruction_set = native.instruction_sets()[0]

    def build_native(config: ModelConfig, weights: WeightSource, num_threads: int) -> NativeDecoder:
        torch.set_num_threads(1)  # torch's own threads spin for a while after each use, and take the cores away
        return NativeDecoder(config, weights, instruction_set, num_threads)

    shapes = {name: weights.shape(name) for name in weights}
    weight_bytes = sum(
        native.packed_bytes(weights.storage(name), shape[0], shape[1]) if len(shape) == 2 else 4 * math.prod(shape)
        for name, shape in shapes.items()
    )
    return _Arithmetic(f"native ({instruction_set})", torch.bfloat16, weight_bytes, build_native)


def choose_dtype(name: str) -> torch.dtype:
    """The torch dtype of an option value; ``auto`` is bfloat16 where the processor multiplies it, else float32."""
    if name == "auto":
        name = "bfloat16" if read_cpu().has_bfloat16 else "float32"
    return {"bfloat16": torch.bfloat16, "float32": torch.float32}[name]


def _limits(cache: CachePlan, options: EngineOptions, fingerprint: str) -> SchedulerLimits:
    return SchedulerLimits(
        groups=cache.groups,
        block_size=options.block_size,
        max_step_tokens=options.max_step_tokens,
        max_prompt_tokens=options.max_prompt_tokens,
        max_running=options.max_running,
        max_waiting=options.max_waiting,
        max_length=cache.context,
        patience_s=options.patience_s,
        prefix_cache=options.prefix_cache,
        fingerprint=fingerprint,
    )
