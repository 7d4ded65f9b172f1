"""What the scheduler says and hears: plans with their reasons, results, outcomes. Values only.

A *block* is an integer that stands for the cache room of ``block_size`` consecutive positions; the executor knows
where that room lies. A *plan* is one step of the model over some rows of some requests; its *result* comes back under
the plan's id, and *outcomes* are what that meant for each request.
"""

from dataclasses import dataclass
from enum import StrEnum

from cutaway.types import FinishReason, SamplingParams, TokenChoice


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """Bounds of the scheduler, fixed at start.

    Attributes:
        block_size: positions in a block.
        num_blocks: blocks in the pool.
        max_step_tokens: rows that one step may compute.
        max_running: requests that may hold blocks at the same time.
        max_waiting: requests that may queue; more are rejected.
        max_length: positions of one request, prompt and answer together.
    """

    block_size: int
    num_blocks: int
    max_step_tokens: int
    max_running: int
    max_waiting: int
    max_length: int


@dataclass(frozen=True, slots=True)
class NewRequest:
    """A request as the scheduler and the executor first see it.

    Attributes:
        request_id: unique among live requests.
        token_ids: the prompt, at least one token.
        max_tokens: most tokens to generate, at least one.
        end_ids: tokens that end the answer.
        sampling: how tokens are chosen; for the executor.
        num_top: most likely tokens to report beside each chosen one; for the executor.
        num_candidates: candidates to report for each sampler stage; for the executor.
    """

    request_id: str
    token_ids: tuple[int, ...]
    max_tokens: int
    end_ids: tuple[int, ...]
    sampling: SamplingParams
    num_top: int = 0
    num_candidates: int = 0


@dataclass(frozen=True, slots=True)
class ScheduledRows:
    """Consecutive positions of one request that a step computes.

    Attributes:
        request_id: whose.
        start: position of the first row.
        count: number of rows.
        new_blocks: blocks that this step appends to the request's block table.
        needs_sample: the last row is the last known token, so a next token is to be chosen after it.
    """

    request_id: str
    start: int
    count: int
    new_blocks: tuple[int, ...]
    needs_sample: bool


class Action(StrEnum):
    """What a plan decided about a request that was not simply continued."""

    ADMITTED = "admitted"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision and why: the glass shows it, nothing acts on it."""

    request_id: str
    action: Action
    reason: str


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step, complete: whoever executes it needs nothing else but the earlier plans.

    Attributes:
        plan_id: counts up from 0.
        new: requests that appear in a plan for the first time.
        rows: what to compute; never two entries for one request.
        released: requests whose state can be dropped before this step; no later plan names them.
        decisions: who was admitted, who waits, and why.
        budget_left: rows that the step had room for beyond ``rows``.
    """

    plan_id: int
    new: tuple[NewRequest, ...]
    rows: tuple[ScheduledRows, ...]
    released: tuple[str, ...]
    decisions: tuple[Decision, ...]
    budget_left: int

    @property
    def num_tokens(self) -> int:
        """Rows of all requests together."""
        return sum(rows.count for rows in self.rows)


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Where a step's time went, in nanoseconds: building tensors, the forward pass, choosing tokens."""

    prepare_ns: int = 0
    forward_ns: int = 0
    sample_ns: int = 0


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step computed.

    Attributes:
        plan_id: the plan that was executed.
        choices: the chosen token of each request whose rows needed a sample and that did not fail.
        failures: requests that failed in this step, each with what happened; they get no choice.
        times: where the time went.
    """

    plan_id: int
    choices: dict[str, TokenChoice]
    failures: dict[str, str]
    times: StepTimes = StepTimes()


@dataclass(frozen=True, slots=True)
class TokenGenerated:
    """A request has one more token."""

    request_id: str
    choice: TokenChoice


@dataclass(frozen=True, slots=True)
class RequestFinished:
    """A request reached its one terminal outcome.

    Attributes:
        request_id: whose.
        reason: which kind of end.
        cause: what ended it, in words or as a token id.
        num_prompt_tokens: length of the prompt.
        num_generated_tokens: tokens chosen, an end token included.
        num_blocks: blocks that it held and gives back.
    """

    request_id: str
    reason: FinishReason
    cause: str
    num_prompt_tokens: int
    num_generated_tokens: int
    num_blocks: int


Outcome = TokenGenerated | RequestFinished
