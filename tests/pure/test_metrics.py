"""What is measured of requests, and the numbers that an operator sees of it: they add up exactly."""

import asyncio
import itertools
import multiprocessing
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from fake_engine import FACTS, LIMITS, VOCAB_SIZE, make_core, make_preparer, make_request
from scraped import Scraped

from cutaway.api.metrics import Metrics, cache_usage, length_buckets
from cutaway.engine.client import EngineStats, Progress
from cutaway.engine.core import EngineCore
from cutaway.engine.engine import Engine
from cutaway.engine.messages import Event
from cutaway.engine.prepare import Preparer
from cutaway.engine.process import ProcessWorker
from cutaway.engine.streams import Streams
from cutaway.engine.worker import ThreadWorker
from cutaway.executor.fake import FakeRunner
from cutaway.glass.measures import Measures, measure
from cutaway.glass.receipt import Receipt
from cutaway.glass.recorder import Recorder
from cutaway.scheduler.plan import GroupLimits, SchedulerLimits, StepPlan, StepResult
from cutaway.scheduler.scheduler import Scheduler
from cutaway.text.fake import ByteTokenizer
from cutaway.types import Delta, Finish, FinishReason, GenerationRequest, Usage

LONG = "a question that fills some blocks of the cache"
TINY = replace(LIMITS, groups=(GroupLimits(12),), max_length=48)


class Ticking:
    """A clock that is one nanosecond further each time it is read."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        self.ns += 1
        return self.ns


def receipts_of(
    requests: list[GenerationRequest], limits: SchedulerLimits = LIMITS, at_once: bool = True
) -> dict[str, Receipt]:
    """The receipts of some requests, together or one after another."""
    clock, tokenizer = Ticking(), ByteTokenizer()
    runner = FakeRunner(limits.block_size, VOCAB_SIZE)
    core = EngineCore(Scheduler(limits), runner, tokenizer, Recorder(FACTS, tokenizer), clock)
    preparer = Preparer(tokenizer, None, limits.max_length, clock)
    events: list[Event] = []
    for stream_id, request in enumerate(requests):
        events += core.add(stream_id, preparer.prepare(request))
        while core.num_live and not at_once:
            events += core.step()
    while core.num_live:
        events += core.step()
    return {event.receipt.request_id: event.receipt for event in events if event.receipt is not None}


def test_the_times_of_a_request_are_those_between_its_moments() -> None:
    receipt = receipts_of([make_request("a", LONG, 5)])["a"]
    measures, marks = measure(receipt), receipt.marks
    first, *_, last = [step for step in receipt.steps if step.sampled]
    assert len(receipt.steps) > len(measures.token_ns) == 5
    assert measures.queue_ns == receipt.steps[0].begin_ns - marks.tokenized_ns
    assert measures.prefill_ns == first.end_ns - receipt.steps[0].begin_ns
    assert measures.decode_ns == last.end_ns - first.end_ns == sum(measures.token_gaps_ns)
    assert measures.token_ns[0] == first.end_ns - marks.received_ns
    assert measures.total_ns == marks.finished_ns - marks.received_ns
    before = marks.tokenized_ns - marks.received_ns
    assert before + measures.queue_ns + measures.prefill_ns + measures.decode_ns <= measures.total_ns


def test_one_token_takes_no_time_to_decode() -> None:
    measures = measure(receipts_of([make_request("a", LONG, 1)])["a"])
    assert (measures.decode_ns, measures.token_gaps_ns, len(measures.token_ns)) == (0, [], 1)


def test_a_request_that_never_ran_has_no_times_but_the_whole() -> None:
    limits = replace(LIMITS, max_waiting=1)
    rejected = receipts_of([make_request(name, LONG, 4) for name in "ab"], limits)["b"]
    measures = measure(rejected)
    assert rejected.finish.reason is FinishReason.REJECTED
    assert measures == Measures(None, None, None, measures.total_ns, (), 0, 0, 0)
    assert measures.total_ns > 0


def test_a_preemption_is_counted_and_the_times_go_on() -> None:
    receipts = receipts_of([make_request(name, name * 8, 30) for name in "abc"], TINY)
    measures = {name: measure(receipt) for name, receipt in receipts.items()}
    assert measures["a"].num_preemptions == 0
    assert sum(each.num_preemptions for each in measures.values()) > 0
    for name, receipt in receipts.items():
        assert len(measures[name].token_ns) == receipt.finish.num_generated_tokens
        assert all(gap > 0 for gap in measures[name].token_gaps_ns)


def test_the_prefix_cache_is_asked_once_for_each_request_that_does_not_share_its_prompt() -> None:
    requests = [make_request("a", LONG), replace(make_request("b", LONG), n=2)]
    measures = {name: measure(receipt) for name, receipt in receipts_of(requests, at_once=False).items()}
    hits = {name: (each.num_queried, each.num_hits) for name, each in measures.items()}
    assert hits == {"a": (len(LONG), 0), "b": (len(LONG), 44), "b#1": (0, 0)}
    off = replace(LIMITS, prefix_cache=False)
    assert {measure(each).num_queried for each in receipts_of(requests, off).values()} == {0}


@pytest.mark.parametrize(("longest", "buckets"), [(1, [1]), (4, [1, 2]), (256, [1, 2, 5, 10, 20, 50, 100, 200])])
def test_buckets_of_lengths_end_before_the_longest(longest: int, buckets: list[int]) -> None:
    assert length_buckets(longest) == buckets


def test_the_cache_is_used_by_what_is_not_free() -> None:
    assert cache_usage(EngineStats(1, 0, 150, 200, 0)) == 0.25
    assert cache_usage(EngineStats(0, 0, 0, 0, 0)) == 0


class Watched:
    """A watcher that adds up."""

    def __init__(self) -> None:
        self.all: list[Progress] = []

    @property
    def sums(self) -> tuple[int, int, list[FinishReason]]:
        """Tokens of prompts, tokens of answers, and the ends."""
        ends = [each.finish.reason for each in self.all if each.finish is not None]
        prompts, answers = ((each.num_prompt_tokens, each.num_generated_tokens) for each in self.all), ends
        read, generated = (sum(numbers) for numbers in zip(*prompts, strict=True))
        return read, generated, answers


def streams_with(watched: Watched, num_copies: int = 1) -> Streams:
    streams = Streams(watched.all.append)
    assert streams.open(1, "a", num_copies, lambda delta: True)
    return streams


def deltas_of(request: GenerationRequest) -> Iterator[Delta]:
    core = make_core()
    core.add(1, make_preparer().prepare(request))
    while core.num_live:
        yield from (event.delta for event in core.step())


@pytest.mark.parametrize("num_before", range(8))
def test_a_lost_request_counts_as_far_as_its_client_heard_of_it(num_before: int) -> None:
    watched = Watched()
    streams = streams_with(watched)
    streams.begin(1, 6)
    for delta in itertools.islice(deltas_of(make_request("a", "tomato", 12)), num_before):
        streams.take([Event(1, delta)])
    streams.lose("it died")
    assert watched.sums == (6 if num_before else 0, num_before, [FinishReason.FAILED])


def test_a_token_whose_text_broke_is_counted_with_the_end() -> None:
    watched = Watched()
    streams = streams_with(watched)
    streams.begin(1, 6)
    streams.take([Event(1, Delta("", finish=Finish(FinishReason.FAILED, "its text broke", Usage(6, 1))))])
    assert watched.sums == (6, 1, [FinishReason.FAILED])


def test_the_prompt_of_copies_is_read_once() -> None:
    watched = Watched()
    streams = streams_with(watched, 3)
    streams.begin(1, 46)
    core = make_core()
    core.add(1, make_preparer().prepare(replace(make_request("a", LONG, 4), n=3)))
    while core.num_live:
        streams.take(core.step())
    assert watched.sums == (46, 12, [FinishReason.LENGTH] * 3)


class Troubled:
    """A runner that fails the requests whose prompt has a certain length."""

    def __init__(self, limits: SchedulerLimits) -> None:
        self.inner = FakeRunner(limits.block_size, VOCAB_SIZE)
        self.unlucky: set[str] = set()

    def execute(self, plan: StepPlan) -> StepResult:
        self.unlucky |= {new.request_id for new in plan.new if len(new.token_ids) == 13}
        result = self.inner.execute(plan)
        failures = {rows.request_id: "bad luck" for rows in plan.rows if rows.request_id in self.unlucky}
        choices = {name: choice for name, choice in result.choices.items() if name not in failures}
        return replace(result, choices=choices, failures=failures)


async def play_all(engine: Engine) -> list[list[Delta]]:
    """Requests of every fate, at once; what came of each."""
    stop = [f"stop {index}" for index in range(3)]
    requests = [make_request(f"r{index}", f"question {index}", 3 + index) for index in range(6)]
    requests += [make_request(f"u{index}", "u" * 13, 5) for index in range(2)]
    requests += [replace(make_request(f"n{index}", LONG, 6), n=3) for index in range(2)]
    requests += [make_request(name, name, 40, ("\ufffd",)) for name in stop]

    async def ask(request: GenerationRequest) -> list[Delta]:
        return [delta async for delta in engine.submit(request)]

    async def leave(name: str) -> list[Delta]:
        stream = engine.submit(make_request(name, name, 200))
        deltas = [await anext(stream)]
        await stream.aclose()
        while engine.receipt(name) is None:
            await asyncio.sleep(0.001)
        return deltas

    answers = await asyncio.gather(*map(ask, requests))
    left = await asyncio.gather(*(leave(f"leaving {index}") for index in range(2)))
    return [*answers, *left, *await asyncio.gather(*(ask(make_request(f"m{i}", LONG, 2)) for i in range(3)))]


def test_the_numbers_add_up_whatever_becomes_of_requests() -> None:
    limits = replace(LIMITS, max_waiting=14, max_running=4, groups=(GroupLimits(64),))
    receipts: list[Receipt] = []

    async def play() -> Scraped:
        engine = Engine(ThreadWorker(make_core(Troubled(limits), limits)), make_preparer())
        metrics = Metrics(engine)
        engine.watch(lambda progress: receipts.append(progress.receipt) if progress.receipt else None)
        await play_all(engine)
        await engine.drain()
        return Scraped(metrics.text().decode())

    told = asyncio.run(play())
    ends = [receipt.finish for receipt in receipts]
    answered = [end for end in ends if end.num_generated_tokens]
    reasons = {reason.value: sum(end.reason is reason for end in ends) for reason in FinishReason}
    assert told.finished() == {reason: count for reason, count in reasons.items() if count}
    assert {"stop", "length", "aborted", "failed"} <= told.finished().keys()
    assert told.get("generation_tokens_total") == sum(end.num_generated_tokens for end in ends)
    first = [receipt.finish for receipt in receipts if receipt.request.index == 0 and receipt.tokens]
    assert told.get("prompt_tokens_total") == sum(end.num_prompt_tokens for end in first)
    assert told.get("request_generation_tokens_sum") == told.get("generation_tokens_total")
    assert told.get("request_prompt_tokens_sum") == sum(end.num_prompt_tokens for end in answered)
    measures = [measure(receipt) for receipt in receipts]
    assert told.get("num_preemptions_total") == sum(each.num_preemptions for each in measures)
    assert told.get("prefix_cache_queries_total") == sum(each.num_queried for each in measures)
    assert told.get("prefix_cache_hits_total") == sum(each.num_hits for each in measures) > 0
    for name in ("time_to_first_token", "e2e_request_latency", "request_queue_time", "request_decode_time"):
        assert told.get(f"{name}_seconds_count") == len(answered)
    gaps = told.get("inter_token_latency_seconds_count")
    assert gaps == told.get("generation_tokens_total") - len(answered)
    decode_s = sum(each.decode_ns or 0 for each in measures) / 1e9
    assert told.get("request_decode_time_seconds_sum") == pytest.approx(decode_s)
    assert told.get("inter_token_latency_seconds_sum") == pytest.approx(decode_s)
    assert told.get("kv_cache_usage_perc") == told.get("num_requests_running") == 0


def test_a_full_queue_is_counted_as_rejected() -> None:
    limits = replace(LIMITS, max_waiting=2)

    async def play() -> dict[str, float]:
        engine = Engine(ThreadWorker(make_core(limits=limits)), make_preparer())
        metrics = Metrics(engine)
        async for _ in engine.submit(replace(make_request("a", LONG), n=3)):
            pass
        await engine.drain()
        return Scraped(metrics.text().decode()).finished()

    assert asyncio.run(play()) == {"rejected": 3}


class WaitingRunner:
    """Does some steps, and further ones when a file is there."""

    def __init__(self, gate: Path) -> None:
        self.gate = gate
        self.inner = FakeRunner(LIMITS.block_size, VOCAB_SIZE)

    def execute(self, plan: StepPlan) -> StepResult:
        while plan.plan_id >= 4 and not self.gate.exists():
            pass
        return self.inner.execute(plan)


def make_waiting_core(gate: Path) -> EngineCore:
    return make_core(WaitingRunner(gate))


def test_no_counter_falls_when_another_engine_takes_the_place_of_one_that_died(tmp_path: Path) -> None:
    async def play() -> tuple[Scraped, Scraped, Scraped, int]:
        worker = ProcessWorker(partial(make_waiting_core, tmp_path / "gate"))
        worker.wait()
        engine = Engine(worker, make_preparer())
        metrics = Metrics(engine)
        stream = engine.submit(make_request("a", "tomato", 50))
        deltas = [await anext(stream)]  # it has become a prompt
        while not deltas[-1].choices:
            deltas.append(await anext(stream))
        before = Scraped(metrics.text().decode())
        for child in multiprocessing.active_children():
            assert child.pid is not None
            os.kill(child.pid, signal.SIGKILL)
        deltas += [delta async for delta in stream]
        after = Scraped(metrics.text().decode())
        async for _ in engine.submit(make_request("b", "tomato", 2)):
            pass
        engine.close()
        return before, after, Scraped(metrics.text().decode()), sum(len(delta.choices) for delta in deltas)

    before, after, later, num_tokens = asyncio.run(play())
    assert after.finished() == {"failed": 1}
    assert after.get("generation_tokens_total") == num_tokens > 0
    assert after.get("prompt_tokens_total") == 6
    assert later.finished() == {"failed": 1, "length": 1}
    assert later.get("generation_tokens_total") == num_tokens + 2
    for earlier, now in ((before, after), (after, later)):
        for name, labels in earlier.series:
            if name.endswith(("_total", "_count", "_bucket")):
                name = name.removeprefix("cutaway_")
                assert earlier.get(name, **dict(labels)) <= now.get(name, **dict(labels))
