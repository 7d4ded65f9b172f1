"""A plan while it is being made."""

import math
from collections.abc import Sequence

from cutaway.scheduler.plan import (
    Action,
    BlockCopy,
    Decision,
    NewRequest,
    PrefixLookup,
    ScheduledRows,
    SchedulerLimits,
    StepPlan,
    TableChange,
)
from cutaway.scheduler.request import ScheduledRequest


class PlanDraft:
    """Rows and decisions so far, and the budget that is left.

    Args:
        limits: of the scheduler.
        num_answers: running requests that continue an answer; a row is kept for each.
    """

    def __init__(self, limits: SchedulerLimits, num_answers: int) -> None:
        self.limits = limits
        self.budget = limits.max_step_tokens
        self.prompt_rows = limits.max_step_tokens - num_answers  # that prompts may still have
        self.prompt_cost = float(limits.max_prompt_tokens) if num_answers else math.inf  # that they may still add
        self.new: list[NewRequest] = []
        self.copies: list[BlockCopy] = []
        self.rows: list[ScheduledRows] = []
        self.lookups: list[PrefixLookup] = []
        self.decisions: list[Decision] = []
        self.has_preempted = False
        self._told: list[ScheduledRequest] = []

    def why_full(self) -> str:
        """Why no prompt can be read in this step any more, or an empty string."""
        if self.prompt_rows <= 0:
            return f"step budget of {self.limits.max_step_tokens:,} tokens"
        if self.prompt_cost < 1:
            return f"step budget of what {self.limits.max_prompt_tokens:,} prompt tokens cost beside answers"
        return ""

    def most_rows(self, request: ScheduledRequest, work: int) -> int:
        """How many of the ``work`` rows of a prompt this step may compute; at least one, unless it is full.

        A chunk beside answers ends with a block where it can: kernels compute rows in tiles. For the same reason it is
        a block even where that costs more than there is, if only rows that see nothing are counted.
        """
        if self.why_full():
            return 0
        most = min(work, self.prompt_rows)
        if self.prompt_cost == math.inf:
            return most
        start, size = request.next_start, self.limits.block_size
        affordable = int(self.prompt_cost / self.limits.row_cost(start))
        rows = min(most, max(affordable, min(size, int(self.prompt_cost))))
        if rows == work or rows < size:
            return rows
        past_block = (start + rows) % size
        return rows + size - past_block if size - past_block <= min(past_block, most - rows) else rows - past_block

    def admit(self, request: ScheduledRequest, lookup: PrefixLookup) -> None:
        """Introduce a request to the executor."""
        self.new.append(request.new)
        self.lookups.append(lookup)
        self.decide(request, Action.ADMITTED, "room", "there are blocks for all its tokens")

    def resume(self, request: ScheduledRequest, lookup: PrefixLookup) -> None:
        """Start a preempted request anew."""
        self.lookups.append(lookup)
        self.decide(request, Action.ADMITTED, "resumed", "resumed: there are blocks again for all its tokens")

    def add_rows(
        self,
        request: ScheduledRequest,
        count: int,
        work: int,
        changes: tuple[TableChange, ...] = (),
        copies: Sequence[BlockCopy] = (),
    ) -> None:
        """Let the step compute the next ``count`` rows of a request, of which there are ``work``."""
        needs_sample = count == work
        self.rows.append(ScheduledRows(request.request_id, request.next_start, count, changes, needs_sample))
        request.next_start += count
        request.num_pending += needs_sample
        self.budget -= count
        if work > 1:
            self.take_prompt_rows(request, count)
        if copies:
            self.copies += copies

    def take_prompt_rows(self, request: ScheduledRequest, count: int) -> None:
        """Let the last ``count`` rows of a request be of those that prompts may have."""
        self.prompt_rows -= count
        self.prompt_cost -= count * self.limits.row_cost(request.next_start - count)

    def decide(self, request: ScheduledRequest, action: Action, kind: str, reason: str) -> None:
        """Note a decision; that one still waits for the same kind of thing is no news."""
        if action is not Action.WAITING:
            request.told = ""
        elif request.told == kind:
            return
        else:
            request.told = kind
            self._told.append(request)
        self.decisions.append(Decision(request.request_id, action, kind, reason))

    def take_back(self) -> None:
        """Nothing comes of the plan: let the next one tell again what this one decided."""
        for request in self._told:
            request.told = ""

    def freeze(self, plan_id: int, released: Sequence[str], preempted: Sequence[str]) -> StepPlan:
        """The finished plan."""
        return StepPlan(
            plan_id,
            tuple(released),
            tuple(preempted),
            tuple(self.new),
            tuple(self.copies),
            tuple(self.rows),
            tuple(self.lookups),
            tuple(self.decisions),
            self.budget,
        )
