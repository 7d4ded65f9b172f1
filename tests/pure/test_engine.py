"""The engine around a runner without a model: text, stops, ends, failures, threads."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable

import pytest
from fake_engine import CONTEXT, LIMITS, VOCAB_SIZE, make_core, make_preparer, make_request

from cutaway.engine.core import EngineCore
from cutaway.engine.local import LocalEngine
from cutaway.errors import ContextExceeded, EngineStopped
from cutaway.executor.fake import FakeRunner, expected_tokens
from cutaway.executor.runner import Runner
from cutaway.scheduler.plan import StepPlan, StepResult
from cutaway.text.fake import ByteTokenizer
from cutaway.types import Delta, Finish, FinishReason, GenerationRequest, Usage


def add(core: EngineCore, request: GenerationRequest) -> list[tuple[str, Delta]]:
    prepared = make_preparer().prepare(request)
    return core.add(prepared.new, prepared.stop, prepared.draft)


def run(core: EngineCore) -> dict[str, list[Delta]]:
    """Step until everybody has finished; the deltas of each request."""
    deltas: dict[str, list[Delta]] = {request_id: [] for request_id in core.live_ids}
    for _ in range(10_000):
        if not core.live_ids:
            return deltas
        for request_id, delta in core.step():
            deltas[request_id].append(delta)
            core.scheduler.check()
    raise AssertionError("the engine never came to rest")


def expected_ids(request: GenerationRequest) -> list[int]:
    return expected_tokens(make_preparer().prepare(request).new, VOCAB_SIZE)


def shown(token_ids: list[int]) -> str:
    """The text of an answer, decoded at once."""
    tokenizer = ByteTokenizer()
    kept = [token_id for token_id in token_ids if not tokenizer.is_special(token_id)]
    return b"".join(map(tokenizer.token_bytes, kept)).decode("utf-8", "replace")


def text_of(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas)


def ids_of(deltas: list[Delta]) -> list[int]:
    return [choice.token_id for delta in deltas for choice in delta.choices]


@pytest.mark.parametrize("max_tokens", [1, 2, 3, 8, 100])
def test_joined_deltas_are_the_whole_answer(max_tokens: int) -> None:
    requests = {name: make_request(name, f"question {name}", max_tokens) for name in "abcde"}
    core = make_core()
    for request in requests.values():
        assert not add(core, request)
    for name, deltas in run(core).items():
        expected = expected_ids(requests[name])
        assert ids_of(deltas) == expected
        assert text_of(deltas) == shown(expected)
        assert [delta.finish is not None for delta in deltas] == [False] * (len(deltas) - 1) + [True]


def test_the_last_delta_says_how_it_ended() -> None:
    core = make_core()
    add(core, make_request("a", "tomato", 5))
    finish = run(core)["a"][-1].finish
    assert finish == Finish(FinishReason.LENGTH, "max_tokens 5", Usage(6, 5))


def test_an_end_token_is_counted_but_not_shown() -> None:
    requests = (make_request(f"r{index}", f"question {index}", 200) for index in range(100))
    request = next(request for request in requests if len(expected_ids(request)) < 200)
    core = make_core()
    add(core, request)
    deltas = run(core)[request.request_id]
    finish = deltas[-1].finish
    assert finish is not None
    assert finish.reason is FinishReason.STOP
    assert finish.usage.completion_tokens == len(expected_ids(request))
    assert "<|" not in text_of(deltas)


@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_stop_string_ends_the_answer_before_it(length: int) -> None:
    plain = make_request("a", "tomato", 60)
    whole = shown(expected_ids(plain))
    stop = whole[10 : 10 + length]
    core = make_core()
    add(core, make_request("a", "tomato", 60, stop=("never", stop)))
    add(core, make_request("b", "neighbour", 60))
    deltas = run(core)
    assert text_of(deltas["a"]) == whole[: whole.index(stop)]
    finish = deltas["a"][-1].finish
    assert finish is not None
    assert (finish.reason, finish.cause) == (FinishReason.STOP, f"stop string {stop!r}")
    assert finish.usage.completion_tokens < 60
    assert ids_of(deltas["b"]) == expected_ids(make_request("b", "neighbour", 60))


@pytest.mark.parametrize("max_tokens", range(8, 12))
def test_a_stop_string_that_the_last_allowed_token_completes_ends_the_answer(max_tokens: int) -> None:
    whole = shown(expected_ids(make_request("a", "tomato", max_tokens)))
    core = make_core()
    add(core, make_request("a", "tomato", max_tokens, stop=(whole[-1],)))
    deltas = run(core)["a"]
    finish = deltas[-1].finish
    assert finish is not None
    assert (finish.reason, finish.cause) == (FinishReason.STOP, f"stop string {whole[-1]!r}")
    assert text_of(deltas) == whole[: whole.index(whole[-1])]
    receipt = core.recorder.receipt("a")
    assert receipt is not None
    assert receipt.finish.reason is FinishReason.STOP


class BreakingTokenizer(ByteTokenizer):
    """Breaks on one token."""

    def __init__(self, token_id: int) -> None:
        super().__init__()
        self.token_id = token_id

    def token_bytes(self, token_id: int) -> bytes:
        if token_id == self.token_id:
            raise ValueError("no bytes")
        return super().token_bytes(token_id)


@pytest.mark.parametrize("at", [0, 3, 9])
def test_a_request_whose_text_breaks_fails_alone(at: int) -> None:
    expected = {name: expected_ids(make_request(name, name, 10)) for name in ("broken", "healthy")}
    breaking = expected["broken"][at]
    core = make_core()
    for name, tokenizer in (("broken", BreakingTokenizer(breaking)), ("healthy", ByteTokenizer())):
        core.tokenizer = tokenizer
        add(core, make_request(name, name, 10))
    deltas = run(core)
    finish = deltas["broken"][-1].finish
    assert finish is not None
    assert (finish.reason, finish.cause) == (FinishReason.FAILED, "ValueError: no bytes")
    assert sum(delta.finish is not None for delta in deltas["broken"]) == 1
    assert ids_of(deltas["healthy"]) == expected["healthy"]
    assert core.scheduler.cache.num_free_blocks == LIMITS.groups[0].num_blocks


def test_text_held_back_for_a_stop_string_that_never_comes_is_shown_at_the_end() -> None:
    whole = shown(expected_ids(make_request("a", "tomato", 20)))
    core = make_core()
    add(core, make_request("a", "tomato", 20, stop=(whole[-3:] + "never",)))
    assert text_of(run(core)["a"]) == whole


@pytest.mark.parametrize("steps", range(8))
def test_an_abort_at_any_moment_frees_everything(steps: int) -> None:
    core = make_core()
    add(core, make_request("a", "a long question " * 3, 50))
    for _ in range(steps):
        core.step()
    ((request_id, delta),) = core.abort("a", "the client left")
    assert request_id == "a"
    assert delta.finish is not None
    assert delta.finish.reason is FinishReason.ABORTED
    assert core.scheduler.cache.num_free_blocks == LIMITS.groups[0].num_blocks
    assert not core.live_ids


def test_an_abort_of_nobody_does_nothing() -> None:
    assert make_core().abort("nobody", "test") == []


class BreakingRunner:
    """A runner that breaks in one step, whatever it computes there."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.inner = FakeRunner(LIMITS.block_size, VOCAB_SIZE)

    def execute(self, plan: StepPlan) -> StepResult:
        if plan.plan_id == self.step:
            raise ValueError("a kernel broke")
        return self.inner.execute(plan)


def test_a_step_that_breaks_fails_the_requests_in_it_and_nobody_else() -> None:
    core = make_core(BreakingRunner(1))
    add(core, make_request("in it", "first", 10))
    core.step()
    core.step()
    assert not core.live_ids
    add(core, make_request("later", "second", 10))
    assert ids_of(run(core)["later"]) == expected_ids(make_request("later", "second", 10))
    receipt = core.recorder.receipt("in it")
    assert receipt is not None
    assert receipt.finish.cause == "ValueError: a kernel broke"


def test_a_prompt_that_leaves_no_room_is_refused_with_both_numbers() -> None:
    with pytest.raises(ContextExceeded, match=f"{CONTEXT} tokens, but the context holds {CONTEXT}"):
        make_preparer().prepare(make_request("a", "x" * CONTEXT))


def test_a_longer_answer_than_fits_is_clamped_and_said_so() -> None:
    prepared = make_preparer().prepare(make_request("a", "x" * (CONTEXT - 10), 11))
    assert prepared.new.max_tokens == 10
    assert "max_tokens 11 was lowered to 10: the context holds 256 tokens" in prepared.notices


class GatedRunner:
    """A runner that does its first steps at once, and each further one when the gate is open."""

    def __init__(self, num_free_steps: int = 4) -> None:
        self.num_free_steps = num_free_steps
        self.gate = threading.Event()
        self.inner = FakeRunner(LIMITS.block_size, VOCAB_SIZE)

    def execute(self, plan: StepPlan) -> StepResult:
        if plan.plan_id >= self.num_free_steps:
            assert self.gate.wait(60), "nobody opened the gate"
        return self.inner.execute(plan)


def in_thread(play: Callable[[LocalEngine], object], runner: Runner | None = None) -> None:
    """Run a play with an engine in a thread, and see that it stops."""

    async def all_of_it() -> None:
        engine = LocalEngine(make_core(runner), make_preparer())
        await play(engine)  # type: ignore[misc]
        await engine.drain()
        assert engine.stats().num_free_blocks == LIMITS.groups[0].num_blocks

    asyncio.run(all_of_it())


async def collect(stream: AsyncIterator[Delta]) -> list[Delta]:
    return [delta async for delta in stream]


def test_many_clients_of_an_engine_in_a_thread_get_their_own_answers() -> None:
    requests = [make_request(f"r{index}", f"question {index}", 1 + index % 20) for index in range(60)]

    async def ask(engine: LocalEngine, request: GenerationRequest) -> None:
        deltas = [delta async for delta in engine.submit(request)]
        assert ids_of(deltas) == expected_ids(request)

    async def play(engine: LocalEngine) -> None:
        await asyncio.gather(*(ask(engine, request) for request in requests))

    in_thread(play)


def test_a_request_id_that_is_in_use_is_refused_and_harms_nobody() -> None:
    runner = GatedRunner()

    async def play(engine: LocalEngine) -> None:
        stream = engine.submit(make_request("a", "tomato", 30))
        deltas = [await anext(stream)]
        second = asyncio.create_task(collect(engine.submit(make_request("a", "another", 5))))
        await asyncio.sleep(0.1)  # both wait for the engine now
        runner.gate.set()
        finish = (await second)[-1].finish
        assert finish is not None
        assert (finish.reason, finish.cause) == (FinishReason.REJECTED, "a request with the id 'a' is running")
        deltas += [delta async for delta in stream]
        assert ids_of(deltas) == expected_ids(make_request("a", "tomato", 30))

    in_thread(play, runner)


def test_leaving_the_stream_aborts_the_request() -> None:
    runner = GatedRunner()

    async def play(engine: LocalEngine) -> None:
        stream = engine.submit(make_request("a", "tomato", 200))
        async for delta in stream:
            if delta.choices:
                break
        await stream.aclose()  # type: ignore[attr-defined]
        runner.gate.set()
        while (receipt := engine.receipt("a")) is None:
            await asyncio.sleep(0.001)
        assert receipt.finish.reason is FinishReason.ABORTED

    in_thread(play, runner)


def test_an_aborted_stream_ends_with_one_terminal_delta() -> None:
    runner = GatedRunner()

    async def play(engine: LocalEngine) -> None:
        stream = engine.submit(make_request("a", "tomato", 200))
        deltas = [await anext(stream) for _ in range(3)]
        await engine.abort("a")
        runner.gate.set()
        deltas += [delta async for delta in stream]
        finish = deltas[-1].finish
        assert finish is not None
        assert finish.reason is FinishReason.ABORTED

    in_thread(play, runner)


def test_a_drained_engine_finishes_what_runs_and_takes_nothing_new() -> None:
    async def play(engine: LocalEngine) -> None:
        stream = engine.submit(make_request("a", "tomato", 30))
        deltas = [await anext(stream)]
        draining = asyncio.create_task(engine.drain())
        deltas += [delta async for delta in stream]
        await draining
        assert ids_of(deltas) == expected_ids(make_request("a", "tomato", 30))
        with pytest.raises(EngineStopped):
            await anext(engine.submit(make_request("b", "too late")))

    in_thread(play)


def test_a_closed_engine_aborts_what_runs() -> None:
    runner = GatedRunner()

    async def play(engine: LocalEngine) -> None:
        stream = engine.submit(make_request("a", "tomato", 200))
        deltas = [await anext(stream)]
        closing = asyncio.create_task(asyncio.to_thread(engine.close))
        await asyncio.sleep(0)  # let it begin
        runner.gate.set()
        deltas += [delta async for delta in stream]
        await closing
        finish = deltas[-1].finish
        assert finish is not None
        assert (finish.reason, finish.cause) == (FinishReason.ABORTED, "the engine was stopped")

    in_thread(play, runner)


class BrokenCore(EngineCore):
    """A core whose own code breaks in its third step."""

    num_steps = 0

    def step(self) -> list[tuple[str, Delta]]:
        self.num_steps += 1
        if self.num_steps == 3:
            raise RuntimeError("a bug")
        return super().step()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_engine_that_dies_tells_everybody_who_waits() -> None:
    async def play() -> None:
        core = make_core()
        broken = BrokenCore(core.scheduler, core.runner, core.tokenizer, core.recorder, core.clock)
        engine = LocalEngine(broken, make_preparer())
        with pytest.raises(EngineStopped, match="stopped while the request was running"):
            [delta async for delta in engine.submit(make_request("a", "tomato", 30))]
        with pytest.raises(EngineStopped):
            await anext(engine.submit(make_request("b", "tomato", 30)))

    asyncio.run(play())
