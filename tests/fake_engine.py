"""An engine without a model: real scheduler, real text, and a runner that reads its own block store."""

import time

from cutaway.engine.core import EngineCore
from cutaway.engine.prepare import Preparer
from cutaway.executor.fake import FakeRunner, expected_tokens
from cutaway.executor.runner import Runner
from cutaway.glass.receipt import ModelFacts
from cutaway.glass.recorder import Recorder
from cutaway.scheduler.plan import GroupLimits, SchedulerLimits
from cutaway.scheduler.scheduler import Scheduler
from cutaway.text.fake import ByteTokenizer
from cutaway.types import Conversation, Delta, GenerationRequest, Message, Role, SamplingParams

VOCAB_SIZE = ByteTokenizer().vocab_size
CONTEXT = 256
LIMITS = SchedulerLimits(
    groups=(GroupLimits(200),),
    block_size=4,
    max_step_tokens=16,
    max_prompt_tokens=16,
    max_running=8,
    max_waiting=100,
    max_length=CONTEXT,
)
FACTS = ModelFacts(
    name="fake",
    architecture="fake",
    quantization="none",
    dtype="none",
    kernels="fake",
    num_threads=1,
    vocab_size=VOCAB_SIZE,
    hidden_size=1,
    num_layers=1,
    num_heads=1,
    num_kv_heads=1,
    head_dim=1,
    context_length=CONTEXT,
    embedding_storage="none",
    block_size=LIMITS.block_size,
    kv_bytes_per_token=8,
    cache_bytes=6400,
    cache_tokens=800,
    cache_requests=3,
    fingerprint="fake",
    version="fake",
    trained_context=LIMITS.max_length,
)


def make_core(runner: Runner | None = None, limits: SchedulerLimits = LIMITS) -> EngineCore:
    """A core over a fake runner."""
    tokenizer = ByteTokenizer()
    runner = runner or FakeRunner(limits.block_size, VOCAB_SIZE)
    return EngineCore(Scheduler(limits), runner, tokenizer, Recorder(FACTS, tokenizer), time.perf_counter_ns)


def make_preparer() -> Preparer:
    """A preparer for a model without a chat template."""
    return Preparer(ByteTokenizer(), None, CONTEXT, time.perf_counter_ns)


def make_request(
    request_id: str, text: str, max_tokens: int | None = 8, stop: tuple[str, ...] = ()
) -> GenerationRequest:
    """A greedy request with one message."""
    prompt = Conversation((Message(Role.USER, text),))
    return GenerationRequest(request_id, prompt, SamplingParams(temperature=0), max_tokens, stop, num_logprobs=2)


def expected_ids(request: GenerationRequest) -> list[int]:
    """The answer to a request, from the loop without a scheduler."""
    return expected_tokens(make_preparer().prepare(request).copies[0], VOCAB_SIZE)


def shown(token_ids: list[int]) -> str:
    """The text of an answer, decoded at once."""
    tokenizer = ByteTokenizer()
    kept = [token_id for token_id in token_ids if not tokenizer.is_special(token_id)]
    return b"".join(map(tokenizer.token_bytes, kept)).decode("utf-8", "replace")


def text_of(deltas: list[Delta]) -> str:
    """The text that deltas add up to."""
    return "".join(delta.text for delta in deltas)


def ids_of(deltas: list[Delta]) -> list[int]:
    """The tokens that deltas add up to."""
    return [choice.token_id for delta in deltas for choice in delta.choices]
