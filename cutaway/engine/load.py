"""From a checkpoint to a running engine core: weights, cache, scheduler, runner."""

import errno
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cutaway import __version__
from cutaway.engine.arithmetic import NUMBER_BYTES, Arithmetic
from cutaway.engine.core import EngineCore
from cutaway.engine.imports import importing_torch
from cutaway.engine.memory import CachePlan, plan_cache
from cutaway.engine.native import choose_native, native_arithmetic
from cutaway.engine.options import EngineOptions
from cutaway.errors import CorruptFile, OutOfMemory
from cutaway.executor.kv import KVStore, kv_groups
from cutaway.executor.model_runner import ModelRunner
from cutaway.glass.receipt import ModelFacts
from cutaway.glass.recorder import Recorder
from cutaway.machine import available_memory_bytes, read_cpu
from cutaway.models.config import ModelConfig
from cutaway.models.registry import read_config
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
        advice = "a smaller model or a smaller --context"
        if options.dtype == "float32":
            advice = f"--dtype bfloat16, {advice}"
        raise OutOfMemory(
            f"loading {checkpoint.path.name}",
            _weight_bytes(checkpoint, options),
            available_memory_bytes(),
            hint="that is what its weights take, without libraries and the cache; a limit of the process may leave "
            f"less than what is available; choose {advice}",
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
        arithmetic = _choose_arithmetic(config, weights, options)
        number_bytes = NUMBER_BYTES[arithmetic.dtype]
        groups = kv_groups(config, number_bytes)
        cache = plan_cache(groups, config.context_length, arithmetic.weight_bytes, available_memory_bytes(), options)
        embedding_storage = weights.storage("model.embed_tokens.weight")
        model = arithmetic.build(weights, num_threads)
    finally:
        weights.close()
    limits = _limits(cache, options, f"{checkpoint.fingerprint} {arithmetic.dtype} {arithmetic.kernels}")
    store = KVStore(config, number_bytes, options.block_size, [group.num_blocks for group in cache.groups])
    facts = ModelFacts(
        name=name,
        architecture=checkpoint.architecture,
        quantization=checkpoint.quantization,
        dtype=arithmetic.dtype,
        kernels=arithmetic.kernels,
        trained_context=config.context_length,
        why_reference=arithmetic.why_reference,
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
    runner = ModelRunner(model, store, clock)
    return EngineCore(Scheduler(limits), runner, tokenizer, Recorder(facts, tokenizer), clock)


def _choose_arithmetic(config: ModelConfig, weights: WeightSource, options: EngineOptions) -> Arithmetic:
    reason = choose_native(config, weights, options)
    if reason is None:
        return native_arithmetic(config, weights, options.numerics)
    with importing_torch():
        from cutaway.engine.reference import reference_arithmetic
    return reference_arithmetic(config, weights, choose_dtype(options.dtype), reason)


def choose_dtype(name: str) -> str:
    """The dtype of an option value; ``auto`` is bfloat16 where the processor multiplies it, else float32."""
    if name == "auto":
        return "bfloat16" if read_cpu().has_bfloat16 else "float32"
    return name


def _weight_bytes(checkpoint: Checkpoint, options: EngineOptions) -> int:
    """What the weights take, about; native kernels keep those of a GGUF file as they are."""
    if options.kernels != "reference" and options.dtype == "auto" and checkpoint.format == "gguf":
        return checkpoint.num_bytes
    return checkpoint.num_weights * NUMBER_BYTES[choose_dtype(options.dtype)]


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
