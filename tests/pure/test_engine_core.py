"""The engine core around a runner without a model: text, stops, ends, failures."""

from dataclasses import replace

import pytest
from fake_engine import (
    CONTEXT,
    LIMITS,
    VOCAB_SIZE,
    expected_ids,
    ids_of,
    make_core,
    make_preparer,
    make_request,
    shown,
    text_of,
)

from cutaway.engine.core import EngineCore
from cutaway.engine.messages import Event
from cutaway.errors import ContextExceeded, InvalidValue
from cutaway.executor.fake import FakeRunner
from cutaway.glass.receipt import Receipt
from cutaway.limits import MAX_SEED
from cutaway.scheduler.plan import StepPlan, StepResult
from cutaway.text.fake import ByteTokenizer
from cutaway.types import Delta, Finish, FinishReason, GenerationRequest, SamplingParams, Usage


def add(core: EngineCore, request: GenerationRequest) -> list[Event]:
    return core.add(stream_of(request.request_id), make_preparer().prepare(request))


def stream_of(request_id: str) -> int:
    """The id under which the core says what is new about a request."""
    return int.from_bytes(request_id.encode(), "big")


def run(core: EngineCore) -> dict[str, list[Delta]]:
    """Step until everybody has finished; the deltas of each request."""
    deltas: dict[str, list[Delta]] = {}
    for event in run_events(core):
        request_id = event.stream_id.to_bytes(20, "big").lstrip(b"\0").decode()
        deltas.setdefault(request_id, []).append(event.delta)
    return deltas


def run_events(core: EngineCore) -> list[Event]:
    """Step until everybody has finished; everything that happened."""
    events: list[Event] = []
    for _ in range(10_000):
        if not core.num_live:
            return events
        events += core.step()
        core.scheduler.check()
    raise AssertionError("the engine never came to rest")


def receipts_in(events: list[Event]) -> dict[str, Receipt]:
    return {event.receipt.request_id: event.receipt for event in events if event.receipt is not None}


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
    assert finish.stop is None
    assert "<|" not in text_of(deltas)


@pytest.mark.parametrize("max_tokens", [1, 8])
def test_the_first_token_says_what_the_prompt_consumed(max_tokens: int) -> None:
    core = make_core()
    for name, num_cached in (("a", 0), ("b", 20)):  # full blocks of four
        request = replace(make_request(name, "a question of 23 tokens", max_tokens), n=2)
        add(core, request)
        deltas = run(core)[name]
        for index in range(request.n):
            first, *others = [delta for delta in deltas if delta.index == index]
            assert others[-1].finish is not None
            assert first.usage == replace(others[-1].finish.usage, completion_tokens=1)
            assert {delta.usage for delta in others} == {None}
        assert deltas[0].usage == Usage(23, 1, num_cached)


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
    assert (finish.reason, finish.cause, finish.stop) == (FinishReason.STOP, f"stop string {stop!r}", stop)
    assert finish.usage.completion_tokens < 60
    assert ids_of(deltas["b"]) == expected_ids(make_request("b", "neighbour", 60))


@pytest.mark.parametrize("max_tokens", range(8, 12))
def test_a_stop_string_that_the_last_allowed_token_completes_ends_the_answer(max_tokens: int) -> None:
    whole = shown(expected_ids(make_request("a", "tomato", max_tokens)))
    core = make_core()
    add(core, make_request("a", "tomato", max_tokens, stop=(whole[-1],)))
    events = run_events(core)
    finish = events[-1].delta.finish
    assert finish is not None
    assert (finish.reason, finish.cause) == (FinishReason.STOP, f"stop string {whole[-1]!r}")
    assert finish.stop == whole[-1]
    assert text_of([event.delta for event in events]) == whole[: whole.index(whole[-1])]
    assert receipts_in(events)["a"].finish.reason is FinishReason.STOP


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
    (event,) = core.abort(stream_of("a"), "the client left")
    assert event.stream_id == stream_of("a")
    assert event.delta.finish is not None
    assert event.delta.finish.reason is FinishReason.ABORTED
    assert core.scheduler.cache.num_free_blocks == LIMITS.groups[0].num_blocks
    assert not core.num_live


def test_an_abort_of_nobody_does_nothing() -> None:
    assert make_core().abort(5, "test") == []


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
    events = [*core.step(), *core.step()]
    assert not core.num_live
    add(core, make_request("later", "second", 10))
    assert ids_of(run(core)["later"]) == expected_ids(make_request("later", "second", 10))
    assert receipts_in(events)["in it"].finish.cause == "ValueError: a kernel broke"


def test_a_prompt_that_leaves_no_room_is_refused_with_both_numbers() -> None:
    with pytest.raises(ContextExceeded, match=f"{CONTEXT} tokens, but the context holds {CONTEXT}"):
        make_preparer().prepare(make_request("a", "x" * CONTEXT))


def test_a_longer_answer_than_fits_is_clamped_and_said_so() -> None:
    prepared = make_preparer().prepare(make_request("a", "x" * (CONTEXT - 10), 11))
    assert prepared.copies[0].max_tokens == 10
    assert "max_tokens 11 was lowered to 10: the context holds 256 tokens" in prepared.notices


@pytest.mark.parametrize("n", [1, 2, 5])
def test_each_copy_of_a_request_has_its_own_answer_end_and_receipt(n: int) -> None:
    core = make_core()
    question = "a question that fills some blocks"
    add(core, replace(make_request("a", question, 12), n=n))
    events = run_events(core)
    for index in range(n):
        deltas = [event.delta for event in events if event.delta.index == index]
        assert ids_of(deltas) == expected_ids(make_request("a", question, 12))
        assert [delta.finish is not None for delta in deltas] == [False] * (len(deltas) - 1) + [True]
    receipts = receipts_in(events)
    assert list(receipts) == ["a", *(f"a#{index}" for index in range(1, n))]
    assert [receipt.request.index for receipt in receipts.values()] == list(range(n))
    assert [receipt.request.sampling.seed for receipt in receipts.values()] == list(range(n))
    forks = [receipt for receipt in receipts.values() if receipt.request.index]
    assert all(fork.lookup is not None and fork.lookup.fork_of == "a" for fork in forks)
    assert all(fork.finish.num_cached_tokens == len(question) - 1 for fork in forks)


def test_seeds_of_copies_wrap_around_at_the_largest() -> None:
    request = replace(make_request("a", "tomato"), sampling=SamplingParams(seed=MAX_SEED), n=3)
    seeds = [new.sampling.seed for new in make_preparer().prepare(request).copies]
    assert seeds == [MAX_SEED, -MAX_SEED - 1, -MAX_SEED]


@pytest.mark.parametrize("steps", range(8))
def test_an_abort_ends_all_copies(steps: int) -> None:
    core = make_core()
    add(core, make_request("b", "a neighbour", 50))
    add(core, replace(make_request("a", "a long question", 50), n=4))
    for _ in range(steps):
        core.step()
    events = core.abort(stream_of("a"), "the client left")
    assert sorted(event.delta.index for event in events) == [0, 1, 2, 3]
    rest = ids_of(run(core)["b"])
    assert rest
    assert rest == expected_ids(make_request("b", "a neighbour", 50))[-len(rest) :]
    assert core.scheduler.cache.num_free_blocks == LIMITS.groups[0].num_blocks


def test_copies_are_rejected_all_or_none() -> None:
    core = make_core(limits=replace(LIMITS, max_waiting=3))
    events = add(core, replace(make_request("a", "tomato"), n=4))
    assert [event.delta.index for event in events] == [0, 1, 2, 3]
    finishes = {event.delta.finish for event in events}
    cause = "the queue has room for 3 of 4 copies (it holds 3 requests)"
    assert finishes == {Finish(FinishReason.REJECTED, cause, Usage(6, 0))}
    assert not core.num_live
    assert not add(core, replace(make_request("b", "tomato"), n=3))


def test_a_request_id_must_not_look_like_that_of_a_copy() -> None:
    with pytest.raises(InvalidValue, match="'a#1' has a '#', which numbers the copies"):
        make_request("a#1", "tomato")
