"""The engine as its clients see it, the same over a thread and over a process."""

import asyncio
import contextlib
import gc
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

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
)

from cutaway.engine import process as process_module
from cutaway.engine.core import EngineCore
from cutaway.engine.engine import Engine
from cutaway.engine.messages import Event
from cutaway.engine.prepare import Prepared, Preparer
from cutaway.engine.process import MAX_FAILED_STARTS, ProcessWorker
from cutaway.engine.worker import ThreadWorker, Worker
from cutaway.errors import ContextExceeded, CutawayError, EngineStopped, InvalidValue, OutOfMemory
from cutaway.executor.fake import FakeRunner
from cutaway.glass.receipts import MAX_RECEIPTS
from cutaway.limits import MAX_SALT_CHARS
from cutaway.scheduler.plan import NewRequest, Outcome, SchedulerLimits, StepPlan, StepResult
from cutaway.scheduler.scheduler import Scheduler
from cutaway.types import (
    Conversation,
    Delta,
    FinishReason,
    GenerationRequest,
    Message,
    Role,
    TextPrompt,
    TokenPrompt,
)

Play = Callable[[Engine], Awaitable[None]]
LONG = "a question that fills some blocks of the cache"


class GatedRunner:
    """A runner that does its first steps at once, and each further one when the gate, a file, is there."""

    def __init__(self, gate: Path, num_free_steps: int = 4) -> None:
        self.gate = gate
        self.num_free_steps = num_free_steps
        self.inner = FakeRunner(LIMITS.block_size, VOCAB_SIZE)

    def execute(self, plan: StepPlan) -> StepResult:
        deadline = time.monotonic() + 60
        while plan.plan_id >= self.num_free_steps and not self.gate.exists():
            assert time.monotonic() < deadline, "nobody opened the gate"
            time.sleep(0.001)
        return self.inner.execute(plan)


def make_gated_core(gate: Path) -> EngineCore:
    return make_core(GatedRunner(gate))


def make_small_core(limits: SchedulerLimits) -> EngineCore:
    return make_core(limits=limits)


def thread(load: Callable[[], EngineCore]) -> Worker:
    return ThreadWorker(load())


def process(load: Callable[[], EngineCore]) -> Worker:
    worker = ProcessWorker(load)
    worker.wait()
    return worker


@pytest.fixture(params=[thread, process])
def place(request: pytest.FixtureRequest) -> Callable[[Callable[[], EngineCore]], Worker]:
    """Where the engine runs."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def act(place: Callable[[Callable[[], EngineCore]], Worker]) -> Callable[..., None]:
    """Runs a play with an engine, and sees that it stops and that everything was given back."""

    def run(play: Play, load: Callable[[], EngineCore] = make_core) -> None:
        async def all_of_it() -> None:
            engine = Engine(place(load), make_preparer())
            await play(engine)
            await engine.drain()
            assert engine.stats().num_free_blocks == engine.stats().num_blocks
            assert engine.stats().num_running == engine.stats().num_waiting == 0

        asyncio.run(all_of_it())
        assert not multiprocessing.active_children()

    return run


async def collect(stream: AsyncIterator[Delta]) -> list[Delta]:
    return [delta async for delta in stream]


def finish_of(deltas: list[Delta]) -> tuple[FinishReason, str]:
    finish = deltas[-1].finish
    assert finish is not None
    return finish.reason, finish.cause


def test_many_clients_get_their_own_answers(act: Callable[..., None]) -> None:
    requests = [make_request(f"r{index}", f"question {index}", 1 + index % 20) for index in range(60)]

    async def ask(engine: Engine, request: GenerationRequest) -> None:
        assert ids_of(await collect(engine.submit(request))) == expected_ids(request)

    async def play(engine: Engine) -> None:
        await asyncio.gather(*(ask(engine, request) for request in requests))

    act(play)


def test_a_request_id_that_is_in_use_is_refused_and_harms_nobody(act: Callable[..., None], tmp_path: Path) -> None:
    async def play(engine: Engine) -> None:
        stream = engine.submit(make_request("a", "tomato", 30))
        deltas = [await anext(stream)]
        second = await collect(engine.submit(replace(make_request("a", "another", 5), n=2)))
        assert finish_of(second) == (FinishReason.REJECTED, "a request with the id 'a' is running")
        assert [delta.index for delta in second] == [0, 1]
        (tmp_path / "gate").touch()
        deltas += await collect(stream)
        assert ids_of(deltas) == expected_ids(make_request("a", "tomato", 30))

    act(play, partial(make_gated_core, tmp_path / "gate"))


def test_leaving_the_stream_aborts_the_request(act: Callable[..., None], tmp_path: Path) -> None:
    async def play(engine: Engine) -> None:
        stream = engine.submit(replace(make_request("a", "tomato", 200), n=2))
        async for delta in stream:
            if delta.choices:
                break
        await stream.aclose()  # type: ignore[attr-defined]
        (tmp_path / "gate").touch()
        while engine.receipt("a", 1) is None:
            await asyncio.sleep(0.001)
        for index in (0, 1):
            receipt = engine.receipt("a", index)
            assert receipt is not None
            assert receipt.finish.reason is FinishReason.ABORTED

    act(play, partial(make_gated_core, tmp_path / "gate"))


def test_an_aborted_stream_ends_with_one_terminal_delta(act: Callable[..., None], tmp_path: Path) -> None:
    async def play(engine: Engine) -> None:
        stream = engine.submit(make_request("a", "tomato", 200))
        deltas = [await anext(stream) for _ in range(3)]
        await engine.abort("a")
        (tmp_path / "gate").touch()
        deltas += await collect(stream)
        assert finish_of(deltas)[0] is FinishReason.ABORTED

    act(play, partial(make_gated_core, tmp_path / "gate"))


def test_a_drained_engine_finishes_what_runs_and_takes_nothing_new(act: Callable[..., None]) -> None:
    async def play(engine: Engine) -> None:
        stream = engine.submit(make_request("a", "tomato", 30))
        deltas = [await anext(stream)]
        draining = asyncio.create_task(engine.drain())
        deltas += await collect(stream)
        await draining
        assert ids_of(deltas) == expected_ids(make_request("a", "tomato", 30))
        with pytest.raises(EngineStopped):
            await anext(engine.submit(make_request("b", "too late")))

    act(play)


def test_a_closed_engine_aborts_what_runs(act: Callable[..., None], tmp_path: Path) -> None:
    async def play(engine: Engine) -> None:
        stream = engine.submit(make_request("a", "tomato", 200))
        deltas = [await anext(stream)]
        closing = asyncio.create_task(asyncio.to_thread(engine.close))
        await asyncio.sleep(0)  # let it begin
        (tmp_path / "gate").touch()
        deltas += await collect(stream)
        await closing
        assert finish_of(deltas) == (FinishReason.ABORTED, "the engine was stopped")

    act(play, partial(make_gated_core, tmp_path / "gate"))


def test_copies_share_the_prompt_and_end_one_by_one(act: Callable[..., None]) -> None:
    async def play(engine: Engine) -> None:
        deltas = await collect(engine.submit(replace(make_request("a", LONG, 12), n=3)))
        for index in range(3):
            own = [delta for delta in deltas if delta.index == index]
            assert ids_of(own) == expected_ids(make_request("a", LONG, 12))
            assert own[-1].finish is not None
            receipt = engine.receipt("a", index)
            assert receipt is not None
            assert receipt.finish.num_cached_tokens == (len(LONG) - 1 if index else 0)

    act(play)


async def cached_tokens(engine: Engine, request: GenerationRequest) -> int:
    finish = (await collect(engine.submit(request)))[-1].finish
    assert finish is not None
    return finish.usage.cached_tokens


def test_only_requests_with_the_same_salt_share_the_cache(act: Callable[..., None]) -> None:
    async def play(engine: Engine) -> None:
        assert await cached_tokens(engine, replace(make_request("a", LONG), salt="x")) == 0
        assert await cached_tokens(engine, replace(make_request("b", LONG), salt="y")) == 0
        assert await cached_tokens(engine, replace(make_request("c", LONG), salt="x")) == 44

    act(play)


def test_the_smaller_priority_goes_first(act: Callable[..., None], tmp_path: Path) -> None:
    async def play(engine: Engine) -> None:
        ended: list[str] = []

        async def rest(name: str, stream: AsyncIterator[Delta]) -> None:
            await collect(stream)
            ended.append(name)

        streams = {}
        for name, priority in (("first", 0), ("late", 5), ("early", -5), ("middle", 0)):
            request = make_request(name, name, max_tokens=CONTEXT)  # so much that there is a notice
            streams[name] = engine.submit(replace(request, priority=priority))
            assert (await anext(streams[name])).notices  # the engine has it by now, or is in a step
            while not engine.stats().num_running:
                await asyncio.sleep(0.001)
        (tmp_path / "gate").touch()
        await asyncio.gather(*(rest(name, stream) for name, stream in streams.items()))
        assert ended == ["first", "early", "middle", "late"]

    act(play, partial(make_slow_core, tmp_path / "gate"))


def make_slow_core(gate: Path) -> EngineCore:
    return make_core(GatedRunner(gate, num_free_steps=1), replace(LIMITS, max_running=1))


def test_a_conversation_has_as_many_tokens_as_its_prompt(act: Callable[..., None]) -> None:
    conversations = [
        (Message(Role.USER, "토마토"),),
        (
            Message(Role.SYSTEM, "be brief"),
            Message(Role.USER, LONG),
            Message(Role.ASSISTANT, ""),
            Message(Role.USER, "?"),
        ),
    ]

    async def play(engine: Engine) -> None:
        for index, messages in enumerate(conversations):
            request = replace(make_request(str(index), "", 1), prompt=Conversation(messages))
            (finish,) = [delta.finish async for delta in engine.submit(request) if delta.finish is not None]
            assert len(await engine.tokenize(Conversation(messages))) == finish.usage.prompt_tokens
        too_long = Conversation((Message(Role.USER, "x" * 2 * CONTEXT),))
        assert len(await engine.tokenize(too_long)) == 2 * CONTEXT
        with pytest.raises(InvalidValue, match="messages"):
            await engine.tokenize(Conversation((Message(Role.USER, ""),)))

    act(play)


def test_a_pinned_conversation_stays_in_the_cache_until_it_is_released(act: Callable[..., None]) -> None:
    system = (Message(Role.USER, LONG),)

    async def fill(engine: Engine, name: str) -> None:
        for index in range(10):
            await collect(engine.submit(make_request(f"{name}{index}", f"{index} {name} " * 12, 8)))

    async def play(engine: Engine) -> None:
        assert await engine.pin("p", system, 60) == 0  # the cache has nothing of it yet
        await collect(engine.submit(make_request("a", LONG)))
        assert await engine.pin("p", system, 60) == 44
        await fill(engine, "x")
        assert await cached_tokens(engine, make_request("b", LONG)) == 44
        await engine.release("p")
        await fill(engine, "y")
        assert await cached_tokens(engine, make_request("c", LONG)) == 0
        for seconds in (0, -1, 86_401, float("nan")):
            with pytest.raises(InvalidValue, match="pin_seconds"):
                await engine.pin("p", system, seconds)

    act(play, partial(make_small_core, replace(LIMITS, groups=(replace(LIMITS.groups[0], num_blocks=40),))))


def test_thousands_of_clients_who_stay_or_leave_leave_nothing_behind(act: Callable[..., None]) -> None:
    num_clients, num_each = 32, 30

    async def client(engine: Engine, index: int) -> None:
        dice = random.Random(index)
        for turn in range(num_each):
            request = make_request(f"{index}-{turn}", "question" * dice.randint(1, 4), dice.randint(1, 8))
            stream = engine.submit(replace(request, n=dice.choice([1, 1, 1, 2]), priority=dice.choice([0, 1])))
            if dice.random() < 0.7:
                deltas = await collect(stream)
                assert ids_of([delta for delta in deltas if not delta.index]) == expected_ids(request)
            else:
                await anext(stream)
                if dice.random() < 0.5:
                    await engine.abort(request.request_id)
                await stream.aclose()  # type: ignore[attr-defined]

    async def play(engine: Engine) -> None:
        sizes = []
        for _ in range(3):
            await asyncio.gather(*(client(engine, index) for index in range(num_clients)))
            for index in range(MAX_RECEIPTS):  # so that the newest receipts, which are kept, are alike in all rounds
                await collect(engine.submit(make_request(f"last {index}", "question", 2)))
            while engine.stats().num_running or engine.stats().num_waiting:
                await asyncio.sleep(0.001)
            assert engine.stats().num_free_blocks == engine.stats().num_blocks
            assert len(asyncio.all_tasks()) == 1
            gc.collect()
            sizes.append(len(gc.get_objects()))
        # The first round fills what is bounded, such as the index of the cache.
        assert sizes[2] - sizes[1] < num_clients * num_each / 2

    act(play)


def test_wrong_values_of_a_request_are_refused() -> None:
    request = make_request("a", "tomato")
    for values, name in (
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"priority": 1001}, "priority"),
        ({"salt": "x" * (MAX_SALT_CHARS + 1)}, "salt"),
        ({"salt": "\ud800"}, "salt"),
    ):
        with pytest.raises(InvalidValue, match=f"^{name}: "):
            replace(request, **values)  # type: ignore[arg-type]


class BrokenCore(EngineCore):
    """A core whose own code breaks in its third step."""

    num_steps = 0

    def step(self) -> list[Event]:
        self.num_steps += 1
        if self.num_steps == 3:
            raise RuntimeError("a bug")
        return super().step()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_dies_tells_everybody_who_waits() -> None:
    async def play() -> None:
        core = make_core()
        broken = BrokenCore(core.scheduler, core.runner, core.tokenizer, core.recorder, core.clock)
        engine = Engine(ThreadWorker(broken), make_preparer())
        deltas = await collect(engine.submit(make_request("a", "tomato", 30)))
        assert finish_of(deltas) == (FinishReason.FAILED, "the engine broke: RuntimeError: a bug")
        with pytest.raises(EngineStopped):
            await anext(engine.submit(make_request("b", "tomato", 30)))
        engine.close()

    asyncio.run(play())


def kill_children() -> None:
    for child in multiprocessing.active_children():
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)


def test_a_process_that_dies_fails_what_ran_and_is_started_again(tmp_path: Path) -> None:
    async def play() -> None:
        engine = Engine(process(partial(make_gated_core, tmp_path / "gate")), make_preparer())
        requests = [replace(make_request(f"r{index}", "tomato", 30), n=1 + index % 2) for index in range(5)]
        streams = [engine.submit(request) for request in requests]
        begun = await asyncio.gather(*(anext(stream) for stream in streams))
        kill_children()
        for request, stream, first in zip(requests, streams, begun, strict=True):
            deltas = await asyncio.wait_for(collect(stream), 2)
            finishes = [delta.finish for delta in deltas if delta.finish is not None]
            assert len(finishes) == request.n
            for finish in finishes:
                assert finish.reason is FinishReason.FAILED
                assert finish.cause == "the engine process was killed (signal 9); another one is being started"
            assert sum(finish.usage.completion_tokens for finish in finishes) == len(ids_of([first, *deltas]))
        (tmp_path / "gate").touch()
        for request in requests:
            deltas = await collect(engine.submit(request))
            assert ids_of([delta for delta in deltas if not delta.index]) == expected_ids(request)
        await engine.drain()

    asyncio.run(play())
    assert not multiprocessing.active_children()


def test_a_process_may_die_again_and_again() -> None:
    async def play() -> None:
        engine = Engine(process(make_core), make_preparer())
        for index in range(MAX_FAILED_STARTS + 2):
            request = make_request(f"r{index}", "tomato", 5)
            assert ids_of(await collect(engine.submit(request))) == expected_ids(request)
            kill_children()
            # Whether it is lost depends on when the engine hears of the death; the next one is not.
            await collect(engine.submit(make_request("maybe lost", "tomato", 5)))
        engine.close()

    asyncio.run(play())
    assert not multiprocessing.active_children()


async def ask_on_and_on(engine: Engine) -> None:
    while True:
        deltas = await collect(engine.submit(make_request("a", "tomato")))
        assert finish_of(deltas)[0] is FinishReason.FAILED


class Gate:
    """Lets a thread come to a point and wait there."""

    def __init__(self) -> None:
        self.reached, self.open = threading.Event(), threading.Event()

    def wait(self) -> None:
        self.reached.set()
        assert self.open.wait(60), "nobody opened the gate"


class GatedPreparer(Preparer):
    """Waits before it prepares."""

    def prepare(self, request: GenerationRequest) -> Prepared:
        self.gate.wait()
        return super().prepare(request)


def gated_preparer(gate: Gate) -> Preparer:
    plain = make_preparer()
    preparer = GatedPreparer(plain.tokenizer, plain.template, plain.context_length, plain.clock)
    preparer.gate = gate  # type: ignore[attr-defined]
    return preparer


def test_an_abort_while_the_prompt_is_made_is_not_lost() -> None:
    async def play() -> None:
        gate = Gate()
        engine = Engine(ThreadWorker(make_core()), gated_preparer(gate))
        asking = asyncio.create_task(collect(engine.submit(replace(make_request("a", "tomato", 30), n=2))))
        await asyncio.to_thread(gate.reached.wait)
        await engine.abort("a")
        gate.open.set()
        deltas = await asking
        assert [(delta.index, finish_of([delta])[0]) for delta in deltas] == [
            (0, FinishReason.ABORTED),
            (1, FinishReason.ABORTED),
        ]
        await engine.drain()

    asyncio.run(play())


def test_a_client_who_leaves_late_harms_nobody_who_uses_the_id_again(tmp_path: Path) -> None:
    async def play() -> None:
        engine = Engine(ThreadWorker(make_gated_core(tmp_path / "gate")), make_preparer())
        late = engine.submit(make_request("a", "tomato", 3))
        await anext(late)
        while engine.receipt("a") is None:
            await asyncio.sleep(0.001)
        second = engine.submit(make_request("a", "another", 30))
        while engine.stats().num_running + engine.stats().num_waiting == 0:
            asking = asyncio.ensure_future(anext(second))
            await asyncio.sleep(0.01)
        await late.aclose()  # type: ignore[attr-defined]
        (tmp_path / "gate").touch()
        deltas = [await asking, *await collect(second)]
        assert ids_of(deltas) == expected_ids(make_request("a", "another", 30))
        await engine.drain()

    asyncio.run(play())


def test_stats_are_true_from_the_start_and_after_a_death() -> None:
    async def play() -> None:
        engine = Engine(process(make_core), make_preparer())
        await settled(engine, LIMITS.groups[0].num_blocks)
        kill_children()
        await settled(engine, 0)
        await settled(engine, LIMITS.groups[0].num_blocks)
        engine.close()
        assert engine.stats().num_blocks == 0

    asyncio.run(play())


async def settled(engine: Engine, num_blocks: int) -> None:
    """Wait until an idle engine has so many blocks, all of them free."""
    while (engine.stats().num_blocks, engine.stats().num_free_blocks) != (num_blocks, num_blocks):
        assert engine.stats().num_running == engine.stats().num_waiting == 0
        await asyncio.sleep(0.0005)


def test_what_cannot_cross_to_the_process_fails_alone() -> None:
    class Local(str):
        pass

    async def play() -> None:
        engine = Engine(process(make_core), make_preparer())
        bad = GenerationRequest("bad", Conversation((Message(Role.USER, Local("x")),)), max_tokens=3)
        with pytest.raises((AttributeError, pickle.PicklingError)):
            await collect(engine.submit(bad))
        for name in ("bad", "good"):
            request = make_request(name, "tomato", 5)
            assert ids_of(await collect(engine.submit(request))) == expected_ids(request)
        await engine.drain()

    asyncio.run(play())


def test_the_process_never_sees_ctrl_c() -> None:
    async def play() -> None:
        engine = Engine(process(make_core), make_preparer())
        for _ in range(2):
            (child,) = multiprocessing.active_children()
            assert child.pid is not None
            for _ in range(3):
                os.kill(child.pid, signal.SIGINT)
            request = make_request("a", "tomato", 30)
            assert ids_of(await collect(engine.submit(request))) == expected_ids(request)
            kill_children()
            await settled(engine, 0)
            await settled(engine, LIMITS.groups[0].num_blocks)
        await engine.drain()

    asyncio.run(play())


def test_a_process_that_hangs_is_ended_by_a_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "SECONDS_TO_CLOSE", 0.2)

    async def play() -> None:
        engine = Engine(process(make_core), make_preparer())
        await settled(engine, LIMITS.groups[0].num_blocks)
        for child in multiprocessing.active_children():
            assert child.pid is not None
            os.kill(child.pid, signal.SIGSTOP)
        engine.close()

    asyncio.run(play())
    assert not multiprocessing.active_children()


def test_a_process_that_the_system_has_no_room_for_is_started_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "SECONDS_BETWEEN_STARTS", 0.01)
    start = process_module.ProcessWorker._start_another
    tries = 0

    def start_the_second_time(worker: ProcessWorker) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise OSError("too many open files")
        start(worker)

    monkeypatch.setattr(process_module.ProcessWorker, "_start_another", start_the_second_time)

    async def play() -> None:
        engine = Engine(process(make_core), make_preparer())
        await settled(engine, LIMITS.groups[0].num_blocks)
        kill_children()
        await settled(engine, 0)
        await settled(engine, LIMITS.groups[0].num_blocks)
        request = make_request("a", "tomato", 5)
        assert ids_of(await collect(engine.submit(request))) == expected_ids(request)
        await engine.drain()

    asyncio.run(play())


def test_the_receipt_of_a_lost_request_is_not_that_of_an_earlier_one(tmp_path: Path) -> None:
    async def play() -> None:
        engine = Engine(process(partial(make_gated_core, tmp_path / "gate")), make_preparer())
        await collect(engine.submit(make_request("a", "tomato", 2)))
        assert engine.receipt("a") is not None
        stream = engine.submit(make_request("a", "another", 50))
        await anext(stream)
        kill_children()
        assert finish_of(await collect(stream))[0] is FinishReason.FAILED
        assert engine.receipt("a") is None
        engine.close()

    asyncio.run(play())


class UnqueuingScheduler(Scheduler):
    """Breaks when a request is added."""

    def add(self, new: NewRequest, now: float = 0.0, forks: Sequence[NewRequest] = ()) -> list[Outcome]:
        if new.max_tokens == 13:
            raise ValueError("unlucky")
        return super().add(new, now, forks)


def test_a_request_that_cannot_be_queued_fails_alone() -> None:
    async def play() -> None:
        core = make_core()
        core.scheduler = UnqueuingScheduler(LIMITS)
        engine = Engine(ThreadWorker(core), make_preparer())
        neighbour = asyncio.create_task(collect(engine.submit(make_request("b", "tomato", 30))))
        deltas = await collect(engine.submit(replace(make_request("a", "tomato", 13), n=2)))
        ends = [finish_of([delta]) for delta in deltas if delta.finish is not None]
        assert ends == [(FinishReason.FAILED, "ValueError: unlucky")] * 2
        assert ids_of(await neighbour) == expected_ids(make_request("b", "tomato", 30))
        await engine.drain()

    asyncio.run(play())


def test_a_process_that_dies_while_draining_says_so(tmp_path: Path) -> None:
    async def play() -> None:
        engine = Engine(process(partial(make_gated_core, tmp_path / "gate")), make_preparer())
        stream = engine.submit(make_request("a", "tomato", 200))
        await anext(stream)
        draining = asyncio.create_task(engine.drain())
        await asyncio.sleep(0)
        kill_children()
        assert finish_of(await collect(stream)) == (FinishReason.FAILED, "the engine process was killed (signal 9)")
        await draining

    asyncio.run(play())


def test_a_close_after_a_drain_is_a_close(act: Callable[..., None], tmp_path: Path) -> None:
    async def play(engine: Engine) -> None:
        stream = engine.submit(make_request("a", "tomato", 200))
        deltas = [await anext(stream)]
        stopping = [asyncio.create_task(asyncio.to_thread(engine.close)), asyncio.create_task(engine.drain())]
        await asyncio.sleep(0.05)
        (tmp_path / "gate").touch()
        deltas += await collect(stream)
        await asyncio.gather(*stopping)
        assert finish_of(deltas)[0] is FinishReason.ABORTED

    act(play, partial(make_gated_core, tmp_path / "gate"))


def load_once(marker: Path) -> EngineCore:
    """Load the first time; die in every later attempt."""
    if marker.exists():
        os._exit(3)
    marker.touch()
    return make_core()


def test_a_process_that_cannot_be_started_again_is_given_up(tmp_path: Path) -> None:
    async def play() -> None:
        engine = Engine(process(partial(load_once, tmp_path / "loaded")), make_preparer())
        stream = engine.submit(make_request("a", "tomato", 200))
        await anext(stream)
        kill_children()
        assert finish_of(await collect(stream))[0] is FinishReason.FAILED
        with pytest.raises(EngineStopped):
            await ask_on_and_on(engine)
        await engine.drain()

    asyncio.run(play())
    assert not multiprocessing.active_children()


def load_once_then_refuse(marker: Path) -> EngineCore:
    if marker.exists():
        refuse_to_load()
    marker.touch()
    return make_core()


def test_why_a_process_cannot_be_started_again_is_told(tmp_path: Path) -> None:
    async def play() -> None:
        engine = Engine(process(partial(load_once_then_refuse, tmp_path / "loaded")), make_preparer())
        await settled(engine, LIMITS.groups[0].num_blocks)
        kill_children()
        await settled(engine, 0)
        causes = set()
        with contextlib.suppress(EngineStopped):
            while True:
                causes.add(finish_of(await collect(engine.submit(make_request("a", "tomato"))))[1])
        told = "the engine could not be started again: the model needs 2 MB of memory, but 1 MB are available"
        assert causes <= {told, f"{told}; another one is being started", "the engine stopped"}
        assert any(cause.startswith(told) for cause in causes)
        await engine.drain()

    asyncio.run(play())
    assert not multiprocessing.active_children()


def refuse_to_load() -> EngineCore:
    raise OutOfMemory("the model", 2_000_000, 1_000_000, hint="choose a smaller model")


def die_while_loading() -> EngineCore:
    os._exit(3)


def test_a_model_that_cannot_be_loaded_is_the_same_error_from_a_process() -> None:
    with pytest.raises(OutOfMemory) as caught:
        ProcessWorker(refuse_to_load).wait()
    assert str(caught.value) == ("the model needs 2 MB of memory, but 1 MB are available\nhint: choose a smaller model")
    assert caught.value.needed_bytes == 2_000_000
    with pytest.raises(EngineStopped, match=r"the engine process ended \(exit code 3\)"):
        ProcessWorker(die_while_loading).wait()
    assert not multiprocessing.active_children()


def test_every_kind_of_error_survives_the_way_between_processes() -> None:
    def kinds(kind: type[CutawayError]) -> list[type[CutawayError]]:
        return [kind, *(each for below in kind.__subclasses__() for each in kinds(below))]

    for kind in kinds(CutawayError):
        error = kind.__new__(kind, "what happened")
        error.__dict__ |= {"message": "what happened", "hint": "what to do", "extra": 5}
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), vars(copy)) == (kind, "what happened\nhint: what to do", vars(error))


def test_a_process_does_not_outlive_its_parent() -> None:
    code = """
        import os, sys, multiprocessing
        sys.path[:0] = ["tests"]
        from fake_engine import make_core
        from cutaway.engine.process import ProcessWorker
        if __name__ == "__main__":
            worker = ProcessWorker(make_core)
            worker.wait()
            print(multiprocessing.active_children()[0].pid, flush=True)
            os._exit(0)
    """
    root = Path(__file__).parents[2]
    script = [sys.executable, "-c", textwrap.dedent(code)]
    result = subprocess.run(script, capture_output=True, text=True, cwd=root, timeout=60, check=True)
    pid = int(result.stdout)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
            return  # nobody here collects what it left
        time.sleep(0.01)
    raise AssertionError("the process goes on alone")


def test_a_prompt_of_the_whole_context_crosses_the_pipe_while_a_step_runs(tmp_path: Path) -> None:
    async def play() -> None:
        engine = Engine(process(partial(make_gated_core, tmp_path / "gate")), make_preparer())
        first = engine.submit(make_request("a", "tomato", 50))
        await anext(first)
        requests = [make_request(f"r{index}", "x" * (CONTEXT - 8), 8) for index in range(90)]
        asking = asyncio.gather(*(collect(engine.submit(request)) for request in requests))
        await asyncio.sleep(0.2)  # the pipe is full now, and the engine is in a step
        (tmp_path / "gate").touch()
        for request, deltas in zip(requests, await asking, strict=True):
            assert ids_of(deltas) == expected_ids(request)
            assert deltas[-1].finish is not None
            usage = deltas[-1].finish.usage
            assert (usage.prompt_tokens, usage.completion_tokens) == (CONTEXT - 8, len(ids_of(deltas)))
        await collect(first)
        await engine.drain()

    asyncio.run(play())


def test_the_first_delta_comes_when_a_request_has_become_a_prompt(act: Callable[..., None]) -> None:
    async def play(engine: Engine) -> None:
        request = replace(make_request("a", "tomato", 3), prompt=TextPrompt("tomato"))
        deltas = await collect(engine.submit(request))
        assert deltas[0] == Delta("")
        assert Delta("") not in deltas[1:]

    act(play)


def test_the_same_tokens_are_answered_alike_whoever_made_them(act: Callable[..., None]) -> None:
    async def play(engine: Engine) -> None:
        asked = make_request("a", "Is a 토마토 a fruit?", 6)
        token_ids = await engine.tokenize(asked.prompt)
        assert token_ids == tuple("Is a 토마토 a fruit?".encode())
        assert await engine.detokenize(TokenPrompt((*token_ids, 257))) == "Is a 토마토 a fruit?<|end|>"
        for prompt in (TextPrompt("Is a 토마토 a fruit?"), TokenPrompt(token_ids)):
            request = replace(asked, prompt=prompt)
            facts = await engine.render(request)
            assert (facts.token_ids, facts.max_tokens) == (token_ids, 6)
            deltas = await collect(engine.submit(request))
            assert ids_of(deltas) == expected_ids(asked)
            receipt = engine.receipt("a")
            assert receipt is not None
            assert receipt.prompt == facts

    act(play)


def test_what_cannot_be_a_prompt_is_told_by_its_name(act: Callable[..., None]) -> None:
    async def play(engine: Engine) -> None:
        asked = make_request("a", "x", 3)
        for prompt in (TextPrompt("x" * 300, origin="prompt[2]"), TokenPrompt((65,) * 256, "prompt[2]")):
            for run in (engine.render, lambda request: anext(engine.submit(request))):
                with pytest.raises(ContextExceeded) as caught:
                    await run(replace(asked, prompt=prompt))
                assert caught.value.name == "prompt[2]"
            assert len(await engine.tokenize(prompt)) >= 256
        with pytest.raises(
            InvalidValue, match="tokens: the id 260 at position 1 is outside of the vocabulary, 0 to 259"
        ):
            await engine.detokenize(TokenPrompt((65, 260), "tokens"))

    act(play)
