"""Who computes what in the next step.

Owns the queue and the running requests. Refuses to know tensors, texts and clocks: values in, values out. ``plan``
may be called again before the result of an earlier plan is committed, so that planning can overlap with computing.

Policy. Every running request that needs a single row (it continues an answer) gets it. What is left of the step's
budget goes to unread prompts, in chunks, those that are running first. A request is admitted when there are blocks
for all its known tokens; when a running one needs a block and none is free, the last of those that run is preempted:
its blocks are freed, and it is computed again later (mostly from the prefix cache). Nobody is preempted for one that
ranks behind it, so the first in rank always gets on, and everybody finishes.
"""

from bisect import insort
from collections.abc import Sequence
from itertools import islice

from cutaway.scheduler.cache import BlockCache, Found
from cutaway.scheduler.draft import PlanDraft
from cutaway.scheduler.news import ExecutorNews
from cutaway.scheduler.pins import Pins
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
from cutaway.scheduler.queue import WaitingQueue
from cutaway.scheduler.request import ScheduledRequest
from cutaway.types import FinishReason, TokenChoice


class Scheduler:
    """Turns requests into step plans, and step results into outcomes."""

    def __init__(self, limits: SchedulerLimits) -> None:
        assert limits.max_running <= limits.max_step_tokens, "each running request needs a row in every step"
        self.limits = limits
        self.cache = BlockCache(limits)
        self.pins = Pins(self.cache)
        self._live: dict[str, ScheduledRequest] = {}  # every request without a terminal outcome
        self.queue = WaitingQueue(limits.patience_s, limits.max_waiting)
        self._running: list[ScheduledRequest] = []  # by rank
        self._landing: dict[str, ScheduledRequest] = {}  # ended or preempted, with rows still in flight
        self._news = ExecutorNews()
        self._in_flight: dict[int, StepPlan] = {}
        self._next_plan_id = 0
        self._now = 0.0
        self._next_order = 0

    @property
    def num_running(self) -> int:
        """Requests that hold blocks."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Requests that do not."""
        return len(self.queue)

    def add(self, new: NewRequest, now: float = 0.0, forks: Sequence[NewRequest] = ()) -> list[Outcome]:
        """Queue a request and forks of it, all or none; what can never run is rejected at once."""
        family = [self._request(each, now) for each in (new, *forks)]
        longest = max(request.num_worth_computing for request in family)
        cause = self.cache.why_never(longest) or self.queue.why_full(len(family))
        if cause is not None:
            return [_finished(request, FinishReason.REJECTED, cause) for request in family]
        for request in family:
            self._live[request.request_id] = request
            parent = self._parent(request)
            if parent is None or parent is request or parent.generated:
                self.queue.put(request)
            else:
                self.queue.put_beside(request, parent.request_id)
        return []

    def finish(self, request_id: str, reason: FinishReason, cause: str) -> list[Outcome]:
        """End a request from outside: the client left, or its text reached a stop string. Unknown ids end nothing."""
        return [self._end(self._live[request_id], reason, cause)] if request_id in self._live else []

    def plan(self, now: float = 0.0) -> StepPlan | None:
        """Plan the next step; ``None`` when there is nothing to compute now."""
        self._now = now
        self.pins.expire(now)
        self.queue.promote(now)
        work = [request.num_work for request in self._running]
        draft = PlanDraft(self.limits, work.count(1))
        self._continue_running(work, draft)
        if not draft.has_preempted:  # who waits would only take what was just freed
            self._admit(draft)
        if not (draft.rows or self._news):
            draft.take_back()
            return None
        plan = draft.freeze(self._next_plan_id, *self._news.take())
        self._in_flight[plan.plan_id] = plan
        self._next_plan_id += 1
        return plan

    def commit(self, result: StepResult) -> list[Outcome]:
        """Take in the result of the oldest plan in flight."""
        plan = self._in_flight.pop(result.plan_id)
        outcomes: list[Outcome] = []
        for request_id, _, count, _, needs_sample in plan.rows:
            request = self._live.get(request_id) or self._landing[request_id]
            request.num_computed += count
            request.num_pending -= needs_sample
            if request.finished:
                self._settle(request)
            elif request_id in result.failures:
                outcomes.append(self._end(request, FinishReason.FAILED, result.failures[request_id]))
            elif needs_sample:
                self._take_in(request, result.choices[request_id], outcomes)
            else:
                self._land(request)
        return outcomes

    def check(self) -> None:
        """Assert every invariant; for tests, after every call."""
        holders = [*self._running, *self._landing.values()]
        self.cache.check(holders, self.pins)
        self.queue.check()
        waiting = [*self.queue, *self.queue.forks, *(r for r in self._landing.values() if not r.finished)]
        assert sorted(self._live) == sorted(request.request_id for request in [*waiting, *self._running])
        assert [request.rank for request in self._running] == sorted(request.rank for request in self._running)
        assert len(self._running) <= self.limits.max_running
        assert all(request.num_in_flight for request in self._landing.values())
        planned = sum(plan.num_tokens for plan in self._in_flight.values())
        assert planned == sum(request.num_in_flight for request in holders)

    def _request(self, new: NewRequest, now: float) -> ScheduledRequest:
        assert new.token_ids, "a request has at least one token"
        assert new.max_tokens >= 1, "a request generates at least one token"
        assert new.request_id not in self._live, "a request id is in use"
        assert new.request_id not in self._landing, "a request id is in use"
        self._next_order += 1
        return ScheduledRequest(new, self.cache.root(new.salt), len(self.limits.groups), self._next_order, now)

    def _parent(self, request: ScheduledRequest) -> ScheduledRequest | None:
        return None if request.new.fork_of is None else self._live.get(request.new.fork_of)

    def _continue_running(self, work: list[int], draft: PlanDraft) -> None:
        """Give running requests their rows, first in rank first: one to an answer, what is left to prompts."""
        for request, rows in zip(self._running, work, strict=False):  # the last ones may be preempted meanwhile
            most = rows if rows <= 1 else draft.most_rows(request, rows)
            if not most:
                continue
            if request.next_start + most <= request.room_end:
                draft.add_rows(request, most, rows)
            elif room := self._make_room(request, draft):
                count = min(most, room)
                draft.add_rows(request, count, rows, self.cache.extend(request, count))
            else:
                draft.decide(request, Action.WAITING, "no blocks", "no block is free; requests before it have them")

    def _make_room(self, request: ScheduledRequest, draft: PlanDraft) -> int:
        """Rows that a running request has blocks for; requests behind it are preempted until there is one."""
        while not (room := self.cache.room(request)):
            victim = self._running[-1]
            if self._landing:
                return 0  # blocks come back by themselves
            if victim is not request:
                self._preempt(victim, request, draft)
            elif request.num_in_flight or len(self._running) > 1 or not self.pins.release_oldest():
                return 0
        return room

    def _preempt(self, victim: ScheduledRequest, by: ScheduledRequest, draft: PlanDraft) -> None:
        self._running.remove(victim)
        victim.preempted = True
        draft.has_preempted = True
        draft.decide(victim, Action.PREEMPTED, "no blocks", f"{by.request_id}, before it in rank, needed a block")
        self._landing[victim.request_id] = victim
        self._settle(victim)

    def _start_anew(self, request: ScheduledRequest) -> None:
        """Free a preempted request's blocks and let it wait at its place."""
        self.cache.give_back(request)
        request.preempted = False
        request.waiting_since_s = self._now
        self._news.preempt(request.request_id)
        self.queue.put(request)

    def _admit(self, draft: PlanDraft) -> None:
        """Start waiting requests, one after another, until one has to go on waiting; say why they all do."""
        while (request := self.queue.first) is not None:
            found = None
            kind, reason = self._why_busy(draft)
            if not kind:
                found = self._find(request)
                kind, reason = "no blocks", self.cache.why_wait(request, found) or ""
            if found is None or reason:
                if kind == "no blocks" and not (self._running or self._landing) and self.pins.release_oldest():
                    continue
                draft.decide(request, Action.WAITING, kind, reason)
                break
            self._start(self.queue.pop(), found, draft)
        for behind in islice(self.queue, 1, None):
            draft.decide(behind, Action.WAITING, "behind", "behind others in the queue")

    def _why_busy(self, draft: PlanDraft) -> tuple[str, str]:
        """Kind and reason why nobody can be admitted now, or two empty strings."""
        if len(self._running) >= self.limits.max_running:
            return "running limit", f"running limit of {self.limits.max_running:,} requests"
        reason = draft.why_full()
        return ("step budget", reason) if reason else ("", "")

    def _find(self, request: ScheduledRequest) -> Found:
        """What a request can share: its parent's blocks, if it is a fork, or what the prefix cache has."""
        parent = self._parent(request)
        found = None if parent is None or parent.preempted else self.cache.find_fork(request, parent)
        return found or self.cache.find(request)

    def _start(self, request: ScheduledRequest, found: Found, draft: PlanDraft) -> None:
        lookup = self.cache.explain(request, found)
        copies = self.cache.start(request, found)
        insort(self._running, request, key=lambda running: running.rank)
        if self._news.introduce(request.request_id):
            request.num_cached = found.num_tokens
            draft.admit(request, lookup)
        else:
            draft.resume(request, lookup)
        work = request.num_work
        count = min(draft.most_rows(request, work), self.cache.room(request))
        self.cache.extend(request, count)
        draft.add_rows(request, count, work, self.cache.whole_tables(request), copies)
        if work == 1:
            draft.take_prompt_rows(request, count)  # no row was kept for it, as for those that run

    def _take_in(self, request: ScheduledRequest, choice: TokenChoice, outcomes: list[Outcome]) -> None:
        """A request has a token more."""
        new, generated = request.new, request.generated
        generated.append(choice.token_id)
        request.num_known += 1
        outcomes.append(TokenGenerated(request.request_id, choice))
        if len(generated) == 1:
            self.queue.let_forks_queue(request.request_id)
        if choice.token_id in new.end_ids:
            self._land(request)
            request.end_id = choice.token_id
            outcomes.append(self._end(request, FinishReason.STOP, "end token"))
        elif len(generated) == new.max_tokens:
            self._land(request)
            outcomes.append(self._end(request, FinishReason.LENGTH, f"max_tokens {new.max_tokens}"))
        elif request.preempted or request.num_computed >= request.landing_end:
            self._land(request)

    def _land(self, request: ScheduledRequest) -> None:
        """A request's rows are in the cache."""
        self.cache.landed(request)
        if request.preempted and not request.finished:
            self._settle(request)

    def _end(self, request: ScheduledRequest, reason: FinishReason, cause: str) -> RequestFinished:
        request.finished = True
        outcome = _finished(request, reason, cause)
        del self._live[request.request_id]
        self.queue.let_forks_queue(request.request_id)
        if request in self._running:
            self._running.remove(request)
            self._landing[request.request_id] = request
        if request.request_id in self._landing:
            self._settle(request)
        else:
            self.queue.remove(request)
            self._release(request)
        return outcome

    def _settle(self, request: ScheduledRequest) -> None:
        """Free the blocks of a request that ended or was preempted, as soon as no step in flight writes to them."""
        if request.num_in_flight:
            return
        del self._landing[request.request_id]
        if request.finished:
            self._release(request)
        else:
            self._start_anew(request)

    def _release(self, request: ScheduledRequest) -> None:
        """Free everything of a request that ended, and let the executor forget it if it knows it."""
        self.cache.give_back(request)
        self._news.release(request.request_id)


def _finished(request: ScheduledRequest, reason: FinishReason, cause: str) -> RequestFinished:
    return RequestFinished(
        request.request_id,
        reason,
        cause,
        num_prompt_tokens=len(request.new.token_ids),
        num_cached_tokens=request.num_cached,
        num_generated_tokens=len(request.generated),
        num_blocks=sum(len(table.held) for table in request.tables),
        end_id=request.end_id,
    )
