"""From a checkpoint to a running engine core: weights, cache, scheduler, runner."""

import errno
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod

import torch

from cutaway import __version__
from cutaway.engine.core import EngineCore
from cutaway.engine.options import EngineOptions
from cutaway.errors import CorruptFile, InvalidValue, OutOfMemory
from cutaway.executor.kv import KVShape, allocate_kv, kv_shape
from cutaway.executor.torch_runner import TorchRunner
from cutaway.glass.receipt import ModelFacts
from cutaway.glass.recorder import Recorder
from cutaway.kernels import KERNELS
from cutaway.machine import available_memory_bytes, read_cpu
from cutaway.models.config import ModelConfig
from cutaway.models.registry import find_architecture, read_config
from cutaway.scheduler.plan import SchedulerLimits
from cutaway.scheduler.request import num_blocks_for
from cutaway.scheduler.scheduler import Scheduler
from cutaway.text.tokenizer import Tokenizer
from cutaway.weights.checkpoint import Checkpoint
from cutaway.weights.source import WeightSource

# Without --context the cache may take this share of the memory that the weights leave.
CACHE_SHARE = 0.5


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
        InvalidValue: ``options.context`` is more than the model was trained for.
        OutOfMemory: weights and cache do not fit.
    """
    with _naming_memory(checkpoint):
        return _load(checkpoint, name, tokenizer, options, clock)


@contextmanager
def _naming_memory(checkpoint: Checkpoint) -> Iterator[None]:
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
            checkpoint.num_bytes,
            available_memory_bytes(),
            hint="more is needed than the size of the file: decoded weights, cache and torch itself; "
            "choose a smaller model or a smaller --context",
        ) from None


def _load(
    checkpoint: Checkpoint, name: str, tokenizer: Tokenizer, options: EngineOptions, clock: Callable[[], int]
) -> EngineCore:
    num_threads = options.num_threads or read_cpu().num_usable_cores
    torch.set_num_threads(num_threads)
    dtype = choose_dtype(options.dtype)
    weights = checkpoint.weights()
    try:
        config = read_config(checkpoint, weights)
        if tokenizer.vocab_size > config.vocab_size:
            raise CorruptFile(
                f"{checkpoint.path}: the tokenizer has {tokenizer.vocab_size:,} tokens, "
                f"the model only {config.vocab_size:,}"
            )
        shape = kv_shape(config, dtype)
        context = fit_context(config, weights, shape, options)
        embedding_storage = weights.storage("model.embed_tokens.weight")
        model = find_architecture(checkpoint).build(config, weights, dtype)
    finally:
        weights.close()
    limits = SchedulerLimits(
        block_size=options.block_size,
        num_blocks=num_blocks_for(context, options.block_size),
        max_step_tokens=options.max_step_tokens,
        max_running=options.max_running,
        max_waiting=options.max_waiting,
        max_length=context,
    )
    caches = allocate_kv(shape, limits.num_blocks * limits.block_size)
    facts = ModelFacts(
        name=name,
        architecture=checkpoint.architecture,
        quantization=checkpoint.quantization,
        dtype=str(dtype).removeprefix("torch."),
        kernels=KERNELS,
        num_threads=num_threads,
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        num_layers=len(config.layers),
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        context_length=context,
        embedding_storage=embedding_storage,
        block_size=options.block_size,
        kv_bytes_per_token=shape.bytes_per_token,
        fingerprint=checkpoint.fingerprint,
        version=__version__,
    )
    runner = TorchRunner(model, caches, options.block_size, clock)
    return EngineCore(Scheduler(limits), runner, tokenizer, Recorder(facts, tokenizer), clock)


def choose_dtype(name: str) -> torch.dtype:
    """The torch dtype of an option value; ``auto`` is bfloat16 where the processor multiplies it, else float32."""
    if name == "auto":
        name = "bfloat16" if read_cpu().has_bfloat16 else "float32"
    return {"bfloat16": torch.bfloat16, "float32": torch.float32}[name]


def fit_context(config: ModelConfig, weights: WeightSource, shape: KVShape, options: EngineOptions) -> int:
    """Positions of the longest request: what was asked for, or as much of the model's own as memory allows.

    Raises:
        InvalidValue: more was asked for than the model was trained for.
        OutOfMemory: the weights alone do not fit, or not with the cache that was asked for.
    """
    if options.context is not None and options.context > config.context_length:
        raise InvalidValue(
            "context",
            f"{options.context:,} positions are more than the {config.context_length:,} that the model was trained for",
        )
    available = available_memory_bytes()
    weight_bytes = sum(prod(weights.shape(name)) for name in weights) * shape.dtype.itemsize
    if weight_bytes > available:
        raise OutOfMemory("the model", weight_bytes, available, hint="choose a smaller model, or --dtype bfloat16")
    if options.context is not None:
        needed = weight_bytes + options.context * shape.bytes_per_token
        if needed > available:
            raise OutOfMemory(f"the model with a context of {options.context:,}", needed, available)
        return options.context
    fitting = int((available - weight_bytes) * CACHE_SHARE) // shape.bytes_per_token
    if fitting < 1:
        raise OutOfMemory("the model with its cache", weight_bytes + shape.bytes_per_token, available)
    return min(config.context_length, fitting)
