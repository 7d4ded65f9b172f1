"""The scheduler, driven by random traffic over a runner that reads its own block store."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from cutaway.executor.fake import FakeRunner, expected_tokens
from cutaway.scheduler.plan import (
    Action,
    GroupLimits,
    Miss,
    NewRequest,
    Outcome,
    PrefixLookup,
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


def make_limits(
    block_size: int = 4,
    num_blocks: int = 64,
    max_step_tokens: int = 8,
    windows: tuple[int | None, ...] = (None,),
    cost_per_key: float = 0.0,
    **others: int | float | bool,
) -> SchedulerLimits:
    limits = {"max_prompt_tokens": max_step_tokens, "max_running": 4, "max_waiting": 100, "max_length": 256} | others
    groups = tuple(GroupLimits(num_blocks, window, cost_per_key) for window in windows)
    return SchedulerLimits(groups, block_size, max_step_tokens, **limits)  # type: ignore[arg-type]


def make_request(
    request_id: str, num_prompt: int = 5, max_tokens: int = 6, end_ids: tuple[int, ...] = (), **others: object
) -> NewRequest:
    dice = random.Random(request_id)
    prompt = tuple(dice.randrange(VOCAB_SIZE) for _ in range(num_prompt))
    return replace(NewRequest(request_id, prompt, max_tokens, end_ids, SamplingParams()), **others)  # type: ignore[arg-type]


class Drive:
    """A scheduler with a runner, its invariants checked after every call, its plans checked against the limits."""

    def __init__(self, limits: SchedulerLimits) -> None:
        self.limits = limits
        self.scheduler = Scheduler(limits)
        self.windows = tuple(group.window for group in limits.groups)
        self.runner = FakeRunner(limits.block_size, VOCAB_SIZE, self.windows)
        self.now = 0.0
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
        self.take(self.scheduler.add(new, self.now))

    def finish(self, request_id: str, reason: FinishReason = FinishReason.ABORTED) -> None:
        self.take(self.scheduler.finish(request_id, reason, "test"))

    def plan(self) -> bool:
        plan = self.scheduler.plan(self.now)
        self.scheduler.check()
        if plan is None:
            return False
        assert plan.num_tokens + plan.budget_left == self.limits.max_step_tokens
        assert plan.budget_left >= 0
        assert not set(plan.released) & set(plan.preempted)
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
    assert drive.finished["a"] == RequestFinished("a", FinishReason.LENGTH, "max_tokens 6", 5, 0, 6, 3)
    assert drive.scheduler.cache.num_free_blocks == 64


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


PROMPTS = [tuple(random.Random(f"prompt {index}").randrange(VOCAB_SIZE) for _ in range(30)) for index in range(3)]


def random_request(dice: random.Random, request_id: str, earlier: list[NewRequest]) -> NewRequest:
    """Prompts with beginnings in common, sometimes a fork, sometimes the next turn of an earlier request."""
    prompt = dice.choice(PROMPTS)[: dice.randint(1, 30)]
    if dice.random() < 0.5:
        prompt = (*prompt[:20], *(dice.randrange(VOCAB_SIZE) for _ in range(dice.randint(1, 10))))
    new = NewRequest(
        request_id,
        prompt,
        max_tokens=dice.randint(1, 12),
        end_ids=(END_ID,) if dice.random() < 0.5 else (),
        sampling=SamplingParams(),
        priority=dice.choice([0, 0, 0, -1, 1]),
        salt=dice.choice(["", "", "other"]),
    )
    parent = dice.choice(earlier) if earlier else None
    if parent is None or dice.random() < 0.6:
        return new
    if dice.random() < 0.5:
        return replace(new, token_ids=parent.token_ids, salt=parent.salt, fork_of=parent.request_id)
    return replace(new, token_ids=(*parent.token_ids, *prompt)[:30], salt=parent.salt)


@pytest.mark.parametrize("seed", range(200))
def test_random_traffic_answers_as_the_naive_loop_does(seed: int) -> None:
    dice = random.Random(seed)
    block_size = dice.choice([1, 2, 4, 16])
    limits = make_limits(
        block_size=block_size,
        num_blocks=dice.randint(40 // block_size + 2, 90 // block_size + 2),
        max_step_tokens=dice.choice([4, 5, 9, 64]),
        windows=dice.choice([(None,), (None,), (None, 7), (5,), (None, 3, 20)]),
        cost_per_key=dice.choice([0.0, 0.1]),
        max_prompt_tokens=dice.choice([1, 3, 64]),
        max_running=dice.randint(1, 4),
        max_waiting=dice.randint(2, 30),
        max_length=41,
        prefix_cache=dice.random() < 0.8,
        patience_s=dice.choice([0.0, 5.0, 1e9]),
    )
    drive = Drive(limits)
    depth = dice.choice([1, 1, 2, 3])  # plans that run ahead of commits
    requests: dict[str, NewRequest] = {}
    aborted: set[str] = set()
    for index in range(dice.randint(1, 25)):
        new = random_request(dice, f"{seed}-{index}", list(requests.values()))
        requests[new.request_id] = new
        drive.add(new)
        for _ in range(dice.randint(0, 4)):
            drive.now += 1
            if len(drive.in_flight) < depth and dice.random() < 0.7:
                drive.plan()
            elif drive.in_flight:
                drive.commit()
        if dice.random() < 0.2:
            victim = dice.choice(list(requests))
            if victim not in drive.finished:
                aborted.add(victim)
            drive.finish(victim)
        if dice.random() < 0.2:
            drive.scheduler.pins.pin(dice.choice("ab"), dice.choice(PROMPTS), "", drive.now + dice.randint(0, 20))
            drive.scheduler.check()
    while drive.in_flight:
        drive.commit()
    drive.run()

    assert drive.finished.keys() == requests.keys()
    for pin_id in "ab":
        drive.scheduler.pins.release(pin_id)
    assert drive.scheduler.cache.num_free_blocks == sum(group.num_blocks for group in limits.groups)
    assert drive.scheduler.num_running == drive.scheduler.num_waiting == 0
    drive.plan()
    assert drive.runner.num_requests == 0
    for request_id, new in requests.items():
        expected = expected_tokens(new, VOCAB_SIZE, drive.windows)
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


def read_beside_an_answer(limits: SchedulerLimits, num_prompt: int, max_tokens: int = 40) -> Drive:
    """Begin an answer, ``answering``, and then let a prompt, ``reading``, be read beside it."""
    drive = Drive(limits)
    drive.add(make_request("answering", 3, max_tokens))
    drive.plan()
    drive.commit()
    drive.add(make_request("reading", num_prompt, 1))
    while "reading" not in drive.finished:
        assert drive.plan()
        drive.commit()
    return drive


def test_a_long_prompt_does_not_stop_a_running_answer() -> None:
    drive = read_beside_an_answer(make_limits(max_step_tokens=8), 100)
    steps = [plan for plan in drive.plans if any(rows.request_id == "reading" for rows in plan.rows)]
    assert len(steps) > 10
    assert all(any(rows.request_id == "answering" and rows.num_rows == 1 for rows in plan.rows) for plan in steps)


@pytest.mark.parametrize(
    ("windows", "chunks"),
    [((None,), [32, 12, 8, 8, 8, 4, 4, 4, 4, 4, 4, 4, 4]), ((8,), [32, 20, 20, 20, 8])],
    ids=["everything", "a window of 8"],
)
def test_chunks_beside_an_answer_shrink_with_what_a_row_sees(
    windows: tuple[int | None, ...], chunks: list[int]
) -> None:
    limits = make_limits(max_step_tokens=64, windows=windows, cost_per_key=1 / 16, max_prompt_tokens=31)
    drive = read_beside_an_answer(limits, 100)
    rows = [rows for plan in drive.plans for rows in plan.rows if rows.request_id == "reading"]
    assert [each.num_rows for each in rows] == chunks
    costs = [limits.row_cost(each.start) * each.num_rows for each in rows]
    assert all(cost <= 31 + limits.row_cost(each.start) * 2 for cost, each in zip(costs, rows, strict=True))


def test_a_row_that_costs_more_than_the_allowance_is_still_computed() -> None:
    limits = make_limits(max_step_tokens=64, max_prompt_tokens=2, cost_per_key=1.0)
    drive = read_beside_an_answer(limits, 40, max_tokens=100)
    assert len(drive.generated["answering"]) < 60


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
        (make_limits(num_blocks=3), "no blocks: 2 needed, 1 free"),
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
    held = 8 - drive.scheduler.cache.num_free_blocks
    drive.finish("a")
    assert 8 - drive.scheduler.cache.num_free_blocks == held > 0
    drive.commit()
    assert drive.scheduler.cache.num_free_blocks == 8


def lookups(drive: Drive) -> dict[str, PrefixLookup]:
    """What each request found when it was first admitted."""
    found: dict[str, PrefixLookup] = {}
    for plan in drive.plans:
        for lookup in plan.lookups:
            found.setdefault(lookup.request_id, lookup)
    return found


def actions(drive: Drive, action: Action) -> list[str]:
    """About whom it was decided, in order."""
    return [d.request_id for plan in drive.plans for d in plan.decisions if d.action is action]


def run_one(drive: Drive, new: NewRequest) -> PrefixLookup:
    drive.add(new)
    drive.run()
    assert drive.generated[new.request_id] == expected_tokens(new, VOCAB_SIZE, drive.windows)
    return lookups(drive)[new.request_id]


BASE = tuple(range(20))


def ask(name: str, token_ids: tuple[int, ...], **others: object) -> NewRequest:
    return make_request(name, **({"max_tokens": 2} | others), token_ids=token_ids)  # type: ignore[arg-type]


def test_a_prompt_is_found_as_far_as_it_is_the_same_and_the_miss_is_explained() -> None:
    drive = Drive(make_limits(max_step_tokens=64))
    assert run_one(drive, ask("first", BASE)) == PrefixLookup("first", 0, Miss.UNKNOWN)
    assert run_one(drive, ask("again", BASE)) == PrefixLookup("again", 16, Miss.NONE)
    longer = (*BASE, 30, 31, 32, 33, 34)
    changed = (*BASE[:10], 40, *BASE[11:])
    assert run_one(drive, ask("changed", changed)) == PrefixLookup("changed", 8, Miss.DIFFERENT, 10)
    assert run_one(drive, ask("changed at once", (1, *BASE[1:]))) == PrefixLookup("changed at once", 0, Miss.UNKNOWN)
    assert run_one(drive, ask("changed soon", (0, 2, *BASE))) == PrefixLookup("changed soon", 0, Miss.DIFFERENT, 1)
    assert run_one(drive, ask("short", BASE[:4])) == PrefixLookup("short", 0, Miss.SHORT)
    assert run_one(drive, ask("other", BASE, salt="other")) == PrefixLookup("other", 0, Miss.OTHER_SALT)
    assert run_one(drive, ask("longer", longer)).num_cached == 20


def test_the_next_turn_of_a_conversation_finds_the_answer_too() -> None:
    drive = Drive(make_limits(max_step_tokens=64))
    first = ask("first", BASE, max_tokens=9)
    run_one(drive, first)
    said = tuple(drive.generated["first"])
    # The last token of an answer is never computed, so 28 of 29 tokens are in whole blocks.
    assert run_one(drive, ask("second", (*BASE, *said, 1, 2, 3))).num_cached == 28


def test_without_the_cache_nothing_is_found() -> None:
    drive = Drive(make_limits(max_step_tokens=64, prefix_cache=False))
    run_one(drive, ask("first", BASE))
    assert run_one(drive, ask("again", BASE)) == PrefixLookup("again", 0, Miss.OFF)


def test_ends_of_prompts_are_evicted_before_their_beginnings_and_old_ones_before_new_ones() -> None:
    drive = Drive(make_limits(max_step_tokens=64, num_blocks=8))
    run_one(drive, ask("old", tuple(range(100, 116))))  # 4 blocks, and one for its answer that nobody can find
    run_one(drive, ask("new", tuple(range(200, 212))))  # 3 blocks: all 8 are or were in use
    run_one(drive, ask("large", tuple(range(300, 310))))  # needs 3: the free one, and the end of the old prompt
    assert run_one(drive, ask("new again", (*range(200, 212), 0))).num_cached == 12
    assert run_one(drive, ask("old again", (*range(100, 116), 0))) in (
        PrefixLookup("old again", 8, Miss.EVICTED),
        PrefixLookup("old again", 4, Miss.EVICTED),
    )


def test_a_pinned_prefix_is_not_evicted_before_its_time() -> None:
    for until, cached in ((100.0, 16), (1.0, 0)):
        drive = Drive(make_limits(max_step_tokens=64, num_blocks=12))
        run_one(drive, ask("first", BASE))
        assert drive.scheduler.pins.pin("mine", BASE, "", until) == 20
        drive.now = 2.0
        for index in range(4):
            run_one(drive, ask(f"other {index}", tuple(range(100 * index + 100, 100 * index + 120))))
        assert run_one(drive, ask("again", BASE)).num_cached == cached
        drive.scheduler.pins.release("mine")
        assert drive.scheduler.cache.num_free_blocks == 12


def test_pins_hold_at_most_half_of_the_pool_and_yield_to_the_last_request() -> None:
    drive = Drive(make_limits(max_step_tokens=64, num_blocks=8))
    run_one(drive, ask("first", BASE))
    assert drive.scheduler.pins.pin("too much", BASE, "", 100.0) == 0
    assert drive.scheduler.pins.pin("half", BASE[:16], "", 100.0) == 16
    run_one(drive, ask("large", tuple(range(100, 128)), max_tokens=4))
    assert drive.scheduler.cache.num_free_blocks == 8


def test_the_last_in_rank_is_preempted_and_finishes_later() -> None:
    drive = Drive(make_limits(num_blocks=8, max_step_tokens=64))
    drive.add(ask("first", tuple(range(10)), max_tokens=16))
    drive.add(ask("urgent", tuple(range(50, 60)), max_tokens=16, priority=-1))
    drive.run()
    assert actions(drive, Action.PREEMPTED) == ["first"]
    assert actions(drive, Action.ADMITTED) == ["urgent", "first", "first"]
    assert list(drive.finished) == ["urgent", "first"]
    for name, prompt in (("first", range(10)), ("urgent", range(50, 60))):
        assert drive.generated[name] == expected_tokens(ask(name, tuple(prompt), max_tokens=16), VOCAB_SIZE)
    reasons = [d.reason for plan in drive.plans for d in plan.decisions if d.action is Action.PREEMPTED]
    assert reasons == ["urgent, before it in rank, needed a block"]


def test_priorities_come_first_but_nobody_waits_longer_than_the_patience() -> None:
    drive = Drive(make_limits(max_running=1, patience_s=30.0))
    drive.add(ask("running", BASE[:3]))
    drive.plan()
    drive.add(ask("patient", BASE[:3], priority=5))
    for index in range(20):
        drive.add(ask(f"urgent {index}", BASE[:3], priority=-1))
        drive.commit()
        drive.now += 10
        drive.plan()
    while drive.in_flight:
        drive.commit()
    drive.run()
    ended = list(drive.finished)
    assert ended.index("urgent 0") < ended.index("patient") < ended.index("urgent 19")


def test_a_window_keeps_the_memory_of_a_request_constant() -> None:
    limits = make_limits(num_blocks=5, windows=(10,), max_step_tokens=64)
    drive = Drive(limits)
    run_one(drive, ask("long", tuple(range(40)), max_tokens=100))
    assert (
        max(change.first + len(change.blocks) for plan in drive.plans for rows in plan.rows for change in rows.changes)
        > 30
    )


def test_a_prefix_whose_window_is_gone_is_not_used() -> None:
    drive = Drive(make_limits(max_step_tokens=64, windows=(None, 6)))
    run_one(drive, ask("long", tuple(range(40))))
    middle = (*range(20), 90, 91)
    assert run_one(drive, ask("middle", middle)).num_cached in (0, 20)
    assert run_one(drive, ask("end", (*range(40), 90))).num_cached == 40
    # The blocks of the window after 20 tokens go first, since nobody counts on them.
    for index in range(12):
        run_one(drive, ask(f"other {index}", tuple(range(100 * index + 100, 100 * index + 118))))
    lookup = run_one(drive, ask("middle again", (*range(12), 95)))
    assert lookup.num_cached in (0, 12)


def test_forks_share_the_prompt_and_copy_what_they_write() -> None:
    drive = Drive(make_limits(max_step_tokens=64, prefix_cache=False))
    drive.add(ask("parent", BASE[:10], max_tokens=8))
    for index in range(3):
        drive.add(ask(f"fork {index}", BASE[:10], max_tokens=8, fork_of="parent"))
    drive.run()
    assert [lookup.num_cached for lookup in lookups(drive).values()] == [0, 9, 9, 9]
    assert all(answer == drive.generated["parent"] for answer in drive.generated.values())
    assert sum(len(plan.copies) for plan in drive.plans) == 3
    assert drive.scheduler.cache.num_free_blocks == 64


@pytest.mark.parametrize("steps", range(12))
@pytest.mark.parametrize("depth", [1, 3])
def test_an_abort_at_any_moment_frees_everything(steps: int, depth: int) -> None:
    drive = Drive(make_limits(num_blocks=10, max_step_tokens=6))
    names = ["a", "b", "c"]
    for name in names:
        drive.add(make_request(name, 12, 8))
    for step in range(steps):
        drive.plan()
        if step >= depth - 1 and drive.in_flight:
            drive.commit()
    for name in names:
        drive.finish(name)
    while drive.in_flight:
        drive.commit()
    drive.plan()
    assert drive.finished.keys() == set(names)
    assert drive.scheduler.cache.num_free_blocks == 10
    assert drive.runner.num_requests == 0


def test_ten_thousand_requests_leave_nothing_behind() -> None:
    dice = random.Random(1)
    drive = Drive(make_limits(num_blocks=40, max_step_tokens=48, max_running=12, max_length=60))
    prompts = [tuple(dice.randrange(VOCAB_SIZE) for _ in range(24)) for _ in range(20)]
    drive.scheduler.check = lambda: None  # type: ignore[method-assign] - a hundred thousand times is too often
    for index in range(10_000):
        prompt = dice.choice(prompts)[: dice.randint(1, 24)]
        drive.add(ask(str(index), prompt, max_tokens=dice.randint(1, 4)))
        drive.plans.clear()
        if drive.plan():
            drive.commit()
        if dice.random() < 0.1:
            drive.finish(str(dice.randint(max(0, index - 20), index)))
    drive.run()
    Scheduler.check(drive.scheduler)
    assert len(drive.finished) == 10_000
    assert drive.scheduler.cache.num_free_blocks == 40
    assert drive.scheduler.num_running == drive.scheduler.num_waiting == 0
    assert drive.runner.num_requests <= 12  # told with the next plan


def test_short_prompts_do_not_exceed_the_budget_of_a_step() -> None:
    drive = Drive(make_limits(max_step_tokens=8, max_running=4))
    for name, num_prompt in (("a", 1), ("b", 1), ("c", 1), ("d", 20)):
        drive.add(make_request(name, num_prompt))
    drive.run()
    assert drive.plans[0].num_tokens == 8


def test_a_fork_of_a_request_with_another_prompt_shares_nothing() -> None:
    for other in ({"token_ids": BASE[5:15]}, {"salt": "other"}):
        drive = Drive(make_limits(max_step_tokens=64))
        drive.add(ask("parent", BASE[:10], max_tokens=8))
        fork = ask("fork", BASE[:10], max_tokens=8, fork_of="parent")
        fork = replace(fork, **other)  # type: ignore[arg-type]
        drive.add(fork)
        drive.run()
        assert drive.generated["fork"] == expected_tokens(fork, VOCAB_SIZE)
        assert lookups(drive)["fork"].fork_of is None


def test_a_fork_of_itself_or_of_nobody_runs_like_any_other() -> None:
    for parent in ("fork", "nobody"):
        drive = Drive(make_limits(max_step_tokens=64))
        assert run_one(drive, ask("fork", BASE, fork_of=parent)).num_cached == 0


def test_patience_is_about_waiting_and_not_about_age() -> None:
    drive = Drive(make_limits(num_blocks=8, max_step_tokens=64, patience_s=30.0))
    drive.add(ask("old", tuple(range(10)), max_tokens=16, priority=5))
    for _ in range(3):
        drive.now += 20  # it runs all the time
        drive.plan()
        drive.commit()
    drive.add(ask("urgent", tuple(range(50, 60)), max_tokens=16, priority=-1))
    drive.run()
    assert actions(drive, Action.PREEMPTED) == ["old"]
    assert list(drive.finished) == ["urgent", "old"]
