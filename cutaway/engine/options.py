"""How an engine is set up."""

from dataclasses import dataclass

from cutaway.errors import InvalidValue
from cutaway.limits import check_number

DTYPES = ("auto", "bfloat16", "float32")
WORKERS = ("thread", "process")
KERNELS = ("auto", "native", "reference")
NUMERICS = ("invariant", "fast")


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Choices that are made before a model is loaded.

    Attributes:
        context: positions of the longest request; ``None`` takes what the model was trained for, or less if memory
            is short.
        dtype: of weights and cache with the reference kernels: ``float32``, ``bfloat16``, or ``auto``, which is
            bfloat16 where the processor computes with it. To name one is to choose these kernels.
        num_threads: threads for arithmetic; ``None`` takes ``Cpu.num_usable_cores`` of them.
        block_size: positions in a cache block.
        kv_memory: bytes of the cache; ``None`` takes half of what the weights leave.
        prefix_cache: whether what was computed is kept for later requests with the same beginning.
        max_step_tokens: rows that one step computes at most.
        max_prompt_tokens: rows of prompts in a step that also continues answers; fewer far inside a prompt.
        max_running: requests that run at the same time.
        max_waiting: requests that may queue.
        patience_s: seconds that a waiting request lets higher priorities go before it.
        kernels: ``native``: compiled, on weights of a GGUF file in 4 or 8 bits, with a cache of bfloat16;
            ``reference``: readable torch on decoded weights; ``auto``: native where they can run the model.
        numerics: ``invariant``: an answer never depends on what is computed beside it, bit for bit; ``fast``: steps of
            many rows are multiplied in bfloat16 by native kernels with AMX, which is faster, but gives an answer that
            went on beside others, or whose prompt was cut otherwise, other bits.
        worker: where the engine runs: a thread of this process, or a process of its own, which is started again when
            it dies.

    Raises:
        InvalidValue: a value is outside its limits.
    """

    context: int | None = None
    dtype: str = "auto"
    num_threads: int | None = None
    block_size: int = 16
    kv_memory: int | None = None
    prefix_cache: bool = True
    max_step_tokens: int = 512
    max_prompt_tokens: int = 64
    max_running: int = 64
    max_waiting: int = 1024
    patience_s: float = 10.0
    kernels: str = "auto"
    numerics: str = "invariant"
    worker: str = "thread"

    def __post_init__(self) -> None:
        if self.context is not None:
            check_number("context", self.context)
        check_number("block_size", self.block_size)
        if self.kv_memory is not None:
            check_number("kv_memory", self.kv_memory)
        if self.num_threads is not None:
            check_number("threads", self.num_threads)
        if self.dtype not in DTYPES:
            raise InvalidValue("dtype", f"{self.dtype!r} is none of {', '.join(DTYPES)}")
        if self.kernels not in KERNELS:
            raise InvalidValue("kernels", f"{self.kernels!r} is none of {', '.join(KERNELS)}")
        if self.kernels == "native" and self.dtype != "auto":
            raise InvalidValue(
                "dtype", f"{self.dtype!r} is for the reference kernels; native ones have no choice", hint="leave it out"
            )
        if self.numerics not in NUMERICS:
            raise InvalidValue("numerics", f"{self.numerics!r} is none of {', '.join(NUMERICS)}")
        if self.worker not in WORKERS:
            raise InvalidValue("worker", f"{self.worker!r} is none of {', '.join(WORKERS)}")
