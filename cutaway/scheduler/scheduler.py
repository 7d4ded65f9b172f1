"""Who computes what in the next step.

Owns the queue, the running requests and their blocks. Refuses to know tensors, texts and clocks: values in, values
out. ``plan`` may be called again before the result of an earlier plan is committed, so that planning can overlap
with computing.

Policy: every running request that needs a single row (it is decoding) gets it; what is left of the step's budget
goes to unread prompts, oldest first, in chunks; new requests are admitted while there is room for all the blocks
that they may come to need. So an admitted request always finishes, and a long prompt never stops a running answer.
"""

from collections import deque
from collections.abc import Iterator

from cutaway.scheduler.blocks import BlockPool
from cutaway.scheduler.plan import (
    Action,
    Decision,
    NewRequest,
    Outcome,
    RequestFinished,
    ScheduledRows,
    SchedulerLimits,
    StepPlan,
    StepResult,
    TokenGenerated,
)
from cutaway.scheduler.request import ScheduledRequest, longest_length, num_blocks_for
from cutaway.types import FinishReason


class Scheduler:
    """Turns requests into step plans, and step results into outcomes."""

    def __init__(self, limits: SchedulerLimits) -> None:
        assert limits.max_running <= limits.max_step_tokens, "each running request needs a row in every step"
        self.limits = limits
        self._pool = BlockPool(limits.num_blocks)
        self._waiting: deque[ScheduledRequest] = deque()
        self._running: dict[str, ScheduledRequest] = {}  # in the order of admission
        self._ended: dict[str, ScheduledRequest] = {}  # finished, with rows still in flight
        self._released: list[str] = []
        self._in_flight: dict[int, StepPlan] = {}
        self._next_plan_id = 0

    @property
    def num_running(self) -> int:
        """Requests that hold blocks."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    @property
    def num_free_blocks(self) -> int:
        """Blocks that nobody owns."""
        return self._pool.num_free

    def add(self, new: NewRequest) -> list[Outcome]:
        """Queue a request; a request that can never run is rejected at once, with its one terminal outcome."""
        assert new.token_ids, "a request has at least one token"
        assert new.max_tokens >= 1, "a request generates at least one token"
        assert new.request_id not in self._live_ids(), "a request id is used once at a time"
        length = longest_length(new)
        num_reserved = num_blocks_for(length, self.limits.block_size)
        request = ScheduledRequest(new, num_reserved)
        if length > self.limits.max_length:
            return [_finished(request, FinishReason.REJECTED, f"{length} positions exceed {self.limits.max_length}")]
        if num_reserved > self.limits.num_blocks:
            cause = f"{num_reserved} cache blocks are needed, the pool has {self.limits.num_blocks}"
            return [_finished(request, FinishReason.REJECTED, cause)]
        if len(self._waiting) >= self.limits.max_waiting:
            return [
                _finished(request, FinishReason.REJECTED, f"the queue is full ({self.limits.max_waiting} requests)")
            ]
        self._waiting.append(request)
        return []

    def finish(self, request_id: str, reason: FinishReason, cause: str) -> list[Outcome]:
        """End a request from outside: the client left, or its text reached a stop string. Unknown ids end nothing."""
        request = self._running.get(request_id)
        if request is not None:
            return [self._end(request, reason, cause)]
        for waiting in self._waiting:
            if waiting.new.request_id == request_id:
                self._waiting.remove(waiting)
                return [_finished(waiting, reason, cause)]
        return []

    def plan(self) -> StepPlan | None:
        """Plan the next step; ``None`` when there is nothing to compute now."""
        budget = self.limits.max_step_tokens
        rows: list[ScheduledRows] = []
        new: list[NewRequest] = []
        decisions: list[Decision] = []
        decoding = [request for request in self._running.values() if request.num_work == 1]
        reading = [request for request in self._running.values() if request.num_work > 1]
        for request in [*decoding, *reading]:
            if budget:
                rows.append(self._schedule(request, budget))
                budget -= rows[-1].count
        while self._waiting and (why := self._why_wait(budget)) is None:
            request = self._waiting.popleft()
            self._running[request.new.request_id] = request
            new.append(request.new)
            decisions.append(Decision(request.new.request_id, Action.ADMITTED, "room for all of its blocks"))
            rows.append(self._schedule(request, budget))
            budget -= rows[-1].count
        if self._waiting:
            assert why is not None
            decisions += [Decision(request.new.request_id, Action.WAITING, why) for request in self._waiting]
        if not rows and not self._released:
            return None
        plan = StepPlan(self._next_plan_id, tuple(new), tuple(rows), tuple(self._released), tuple(decisions), budget)
        self._released = []
        self._in_flight[plan.plan_id] = plan
        self._next_plan_id += 1
        return plan

    def commit(self, result: StepResult) -> list[Outcome]:
        """Take in the result of the oldest plan in flight."""
        plan = self._in_flight.pop(result.plan_id)
        outcomes: list[Outcome] = []
        for rows in plan.rows:
            request = self._running.get(rows.request_id) or self._ended[rows.request_id]
            request.num_in_flight -= rows.count
            request.num_computed += rows.count
            request.num_pending -= rows.needs_sample
            if request.finished:
                self._release_when_landed(request)
                continue
            if rows.request_id in result.failures:
                outcomes.append(self._end(request, FinishReason.FAILED, result.failures[rows.request_id]))
            elif rows.needs_sample:
                choice = result.choices[rows.request_id]
                request.generated.append(choice.token_id)
                outcomes.append(TokenGenerated(rows.request_id, choice))
                if choice.token_id in request.new.end_ids:
                    outcomes.append(self._end(request, FinishReason.STOP, f"end token {choice.token_id}"))
                elif len(request.generated) == request.new.max_tokens:
                    cause = f"max_tokens {request.new.max_tokens}"
                    outcomes.append(self._end(request, FinishReason.LENGTH, cause))
        return outcomes

    def check(self) -> None:
        """Assert every invariant; for tests, after every call."""
        owned = [block for request in self._holders() for block in request.blocks]
        self._pool.check(owned)
        for request in self._holders():
            assert 0 <= request.num_computed <= request.next_start
            assert request.finished or request.next_start <= request.num_known + request.num_pending
            assert len(request.blocks) == num_blocks_for(request.next_start, self.limits.block_size)
            assert len(request.blocks) <= request.num_reserved
        assert sum(request.num_reserved for request in self._running.values()) <= self.limits.num_blocks
        assert len(self._running) <= self.limits.max_running
        assert len(self._waiting) <= self.limits.max_waiting
        assert all(request.finished and request.num_in_flight for request in self._ended.values())
        planned = sum(plan.num_tokens for plan in self._in_flight.values())
        assert planned == sum(request.num_in_flight for request in self._holders())

    def _holders(self) -> Iterator[ScheduledRequest]:
        yield from self._running.values()
        yield from self._ended.values()

    def _live_ids(self) -> set[str]:
        return {request.new.request_id for request in [*self._holders(), *self._waiting]}

    def _why_wait(self, budget: int) -> str | None:
        """The reason why the first request in the queue cannot be admitted now, or ``None``."""
        if len(self._running) >= self.limits.max_running:
            return f"running limit of {self.limits.max_running} requests"
        if not budget:
            return f"step budget of {self.limits.max_step_tokens} tokens"
        reserved = sum(request.num_reserved for request in self._holders())
        needed = self._waiting[0].num_reserved
        if reserved + needed > self.limits.num_blocks:
            return f"no blocks: {needed} needed, {self.limits.num_blocks - reserved} not reserved"
        return None

    def _schedule(self, request: ScheduledRequest, budget: int) -> ScheduledRows:
        """Give the request as many rows as it can use within the budget."""
        count = min(request.num_work, budget)
        blocks = self._pool.alloc(request.blocks_needed(count, self.limits.block_size))
        needs_sample = count == request.num_work
        rows = ScheduledRows(request.new.request_id, request.next_start, count, blocks, needs_sample)
        request.blocks.extend(blocks)
        request.num_in_flight += count
        request.num_pending += needs_sample
        return rows

    def _end(self, request: ScheduledRequest, reason: FinishReason, cause: str) -> RequestFinished:
        del self._running[request.new.request_id]
        request.finished = True
        outcome = _finished(request, reason, cause)
        self._ended[request.new.request_id] = request
        self._release_when_landed(request)
        return outcome

    def _release_when_landed(self, request: ScheduledRequest) -> None:
        """Free the blocks as soon as no step in flight writes to them."""
        if not request.num_in_flight:
            del self._ended[request.new.request_id]
            self._pool.free(request.blocks)
            self._released.append(request.new.request_id)


def _finished(request: ScheduledRequest, reason: FinishReason, cause: str) -> RequestFinished:
    return RequestFinished(
        request.new.request_id,
        reason,
        cause,
        num_prompt_tokens=len(request.new.token_ids),
        num_generated_tokens=len(request.generated),
        num_blocks=len(request.blocks),
    )
