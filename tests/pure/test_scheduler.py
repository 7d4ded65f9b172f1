"""The scheduler, driven by random traffic over a runner that reads its own block store."""

import random
from collections import Counter

import pytest

from cutaway.executor.fake import FakeRunner, expected_tokens
from cutaway.scheduler.plan import (
    Action,
    NewRequest,
    Outcome,
    RequestFinished,
    SchedulerLimits,
    StepPlan,
    StepResult,
    TokenGenerated,
)
from cutaway.scheduler.scheduler import Scheduler
from cutaway.types import FinishReason, SamplingParams

VOCAB_SIZE = 50
END_ID = 7


def make_limits(block_size: int = 4, num_blocks: int = 64, max_step_tokens: int = 8, **others: int) -> SchedulerLimits:
    limits = {"max_running": 4, "max_waiting": 100, "max_length": 256} | others
    return SchedulerLimits(block_size, num_blocks, max_step_tokens, **limits)


def make_request(
    request_id: str, num_prompt: int = 5, max_tokens: int = 6, end_ids: tuple[int, ...] = ()
) -> NewRequest:
    dice = random.Random(request_id)
    prompt = tuple(dice.randrange(VOCAB_SIZE) for _ in range(num_prompt))
    return NewRequest(request_id, prompt, max_tokens, end_ids, SamplingParams())


class Drive:
    """A scheduler with a runner, its invariants checked after every call, its plans checked against the limits."""

    def __init__(self, limits: SchedulerLimits) -> None:
        self.limits = limits
        self.scheduler = Scheduler(limits)
        self.runner = FakeRunner(limits.block_size, VOCAB_SIZE)
        self.in_flight: list[StepResult] = []
        self.generated: dict[str, list[int]] = {}
        self.finished: dict[str, RequestFinished] = {}
        self.plans: list[StepPlan] = []

    def take(self, outcomes: list[Outcome]) -> None:
        self.scheduler.check()
        for outcome in outcomes:
            assert outcome.request_id not in self.finished, "something came after the terminal outcome"
            if isinstance(outcome, TokenGenerated):
                self.generated.setdefault(outcome.request_id, []).append(outcome.choice.token_id)
            else:
                self.finished[outcome.request_id] = outcome

    def add(self, new: NewRequest) -> None:
        self.take(self.scheduler.add(new))

    def finish(self, request_id: str, reason: FinishReason = FinishReason.ABORTED) -> None:
        self.take(self.scheduler.finish(request_id, reason, "test"))

    def plan(self) -> bool:
        plan = self.scheduler.plan()
        self.scheduler.check()
        if plan is None:
            return False
        assert plan.num_tokens + plan.budget_left == self.limits.max_step_tokens
        assert max(Counter(rows.request_id for rows in plan.rows).values(), default=1) == 1
        self.plans.append(plan)
        self.in_flight.append(self.runner.execute(plan))
        return True

    def commit(self) -> None:
        self.take(self.scheduler.commit(self.in_flight.pop(0)))

    def run(self) -> None:
        """Step until nothing is left."""
        for _ in range(10_000):
            if not self.plan():
                return
            self.commit()
        raise AssertionError("the scheduler never came to rest")


def test_one_request_gets_its_tokens_and_gives_its_blocks_back() -> None:
    drive = Drive(make_limits())
    new = make_request("a")
    drive.add(new)
    drive.run()
    assert drive.generated["a"] == expected_tokens(new, VOCAB_SIZE)
    assert drive.finished["a"] == RequestFinished("a", FinishReason.LENGTH, "max_tokens 6", 5, 6, 3)
    assert drive.scheduler.num_free_blocks == 64


def test_an_end_token_stops_the_answer() -> None:
    new = next(
        request
        for request in (make_request(f"r{index}", max_tokens=60, end_ids=(END_ID,)) for index in range(100))
        if len(expected_tokens(request, VOCAB_SIZE)) < 60
    )
    drive = Drive(make_limits())
    drive.add(new)
    drive.run()
    assert drive.generated[new.request_id] == expected_tokens(new, VOCAB_SIZE)
    assert drive.generated[new.request_id][-1] == END_ID
    assert drive.finished[new.request_id].reason is FinishReason.STOP


@pytest.mark.parametrize("seed", range(200))
def test_random_traffic_answers_as_the_naive_loop_does(seed: int) -> None:
    dice = random.Random(seed)
    block_size = dice.choice([1, 2, 4, 16])
    limits = make_limits(
        block_size=block_size,
        num_blocks=dice.randint(40 // block_size + 2, 120 // block_size + 2),
        max_step_tokens=dice.choice([4, 5, 9, 64]),
        max_running=dice.randint(1, 4),
        max_waiting=dice.randint(2, 30),
        max_length=40,
    )
    drive = Drive(limits)
    depth = dice.choice([1, 1, 2, 3])  # plans that run ahead of commits
    requests: dict[str, NewRequest] = {}
    aborted: set[str] = set()
    for index in range(dice.randint(1, 25)):
        request_id = f"{seed}-{index}"
        new = make_request(
            request_id, dice.randint(1, 30), dice.randint(1, 12), (END_ID,) if dice.random() < 0.5 else ()
        )
        requests[request_id] = new
        drive.add(new)
        for _ in range(dice.randint(0, 4)):
            if len(drive.in_flight) < depth and dice.random() < 0.7:
                drive.plan()
            elif drive.in_flight:
                drive.commit()
        if dice.random() < 0.2:
            victim = dice.choice(list(requests))
            if victim not in drive.finished:
                aborted.add(victim)
            drive.finish(victim)
    while drive.in_flight:
        drive.commit()
    drive.run()

    assert drive.finished.keys() == requests.keys()
    assert drive.scheduler.num_free_blocks == limits.num_blocks
    assert drive.scheduler.num_running == drive.scheduler.num_waiting == 0
    for request_id, new in requests.items():
        expected = expected_tokens(new, VOCAB_SIZE)
        reason = drive.finished[request_id].reason
        got = drive.generated.get(request_id, [])
        if request_id in aborted:
            assert reason is FinishReason.ABORTED
            assert got == expected[: len(got)]
        elif reason is FinishReason.REJECTED:
            assert not got
        else:
            assert got == expected
            assert reason is (FinishReason.STOP if expected[-1] in new.end_ids else FinishReason.LENGTH)


def test_a_long_prompt_does_not_stop_a_running_answer() -> None:
    drive = Drive(make_limits(max_step_tokens=8))
    drive.add(make_request("answering", 3, 40))
    drive.plan()
    drive.commit()
    drive.add(make_request("reading", 100, 1))
    while "reading" not in drive.finished:
        drive.plan()
        drive.commit()
    steps = [plan for plan in drive.plans if any(rows.request_id == "reading" for rows in plan.rows)]
    assert len(steps) > 10
    assert all(any(rows.request_id == "answering" and rows.count == 1 for rows in plan.rows) for plan in steps)


def test_requests_are_admitted_in_the_order_of_arrival() -> None:
    drive = Drive(make_limits(max_running=1, max_step_tokens=16))
    for name in "abcdef":
        drive.add(make_request(name))
    drive.run()
    assert list(drive.finished) == list("abcdef")


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (make_limits(max_running=1), "running limit of 1 requests"),
        (make_limits(max_step_tokens=5), "step budget of 5 tokens"),
        (make_limits(num_blocks=4), "no blocks: 3 needed, 1 not reserved"),
    ],
    ids=str,
)
def test_a_plan_says_who_waits_and_why(limits: SchedulerLimits, reason: str) -> None:
    drive = Drive(limits)
    drive.add(make_request("first"))
    drive.add(make_request("second"))
    drive.plan()
    decisions = {decision.request_id: decision for decision in drive.plans[0].decisions}
    assert decisions["first"].action is Action.ADMITTED
    assert decisions["second"].action is Action.WAITING
    assert decisions["second"].reason == reason


@pytest.mark.parametrize(
    ("limits", "cause"),
    [
        (make_limits(max_length=9), "10 positions exceed 9"),
        (make_limits(num_blocks=2), "3 cache blocks are needed, the pool has 2"),
        (make_limits(max_waiting=0), "the queue is full (0 requests)"),
    ],
    ids=str,
)
def test_a_request_that_cannot_run_is_rejected_at_once(limits: SchedulerLimits, cause: str) -> None:
    drive = Drive(limits)
    drive.add(make_request("a"))
    assert drive.finished["a"].reason is FinishReason.REJECTED
    assert drive.finished["a"].cause == cause
    assert not drive.plan()


def test_a_request_that_fails_in_a_step_fails_alone() -> None:
    drive = Drive(make_limits())
    requests = [make_request("good", 2), make_request("bad", 2)]
    for new in requests:
        drive.add(new)
    drive.plan()
    result = drive.in_flight.pop()
    failing = StepResult(result.plan_id, {"good": result.choices["good"]}, {"bad": "its logits are not numbers"})
    drive.take(drive.scheduler.commit(failing))
    drive.run()
    assert drive.finished["bad"].reason is FinishReason.FAILED
    assert drive.finished["bad"].cause == "its logits are not numbers"
    assert drive.generated["good"] == expected_tokens(requests[0], VOCAB_SIZE)


def test_blocks_of_an_aborted_request_are_kept_until_its_steps_have_landed() -> None:
    drive = Drive(make_limits(num_blocks=8))
    drive.add(make_request("a", 8))
    drive.plan()
    held = 8 - drive.scheduler.num_free_blocks
    drive.finish("a")
    assert 8 - drive.scheduler.num_free_blocks == held > 0
    drive.commit()
    assert drive.scheduler.num_free_blocks == 8
