"""What the scheduler says and hears: plans with their reasons, results, outcomes. Values only.

A *block* is an integer that stands for the cache room of ``block_size`` consecutive positions in one *group* of
layers; the executor knows where that room lies. Layers that see equally far back form a group, and each group numbers
its own blocks. A *plan* is one step of the model over some rows of some requests; its *result* comes back under the
plan's id, and *outcomes* are what that meant for each request.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from cutaway.types import DryBreakers, FinishReason, SamplingParams, TokenChoice


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The cache of one group of layers.

    Attributes:
        num_blocks: blocks in its pool.
        window: positions that a row sees, its own included; ``None`` for all. Older ones are given back.
        cost_per_key: what each position that a row sees in these layers adds to the cost of the row, as a share of
            what a row costs that sees nothing.
    """

    num_blocks: int
    window: int | None = None
    cost_per_key: float = 0.0


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """Bounds of the scheduler, fixed at start.

    Attributes:
        groups: the cache, one entry a group of layers.
        block_size: positions in a block.
        max_step_tokens: rows that one step may compute.
        max_prompt_tokens: rows of prompts in a step that also continues answers, so that these do not stutter; fewer
            far inside a prompt, where a row sees more and costs more.
        max_running: requests that may hold blocks at the same time.
        max_waiting: requests that may queue; more are rejected.
        max_length: positions of one request, prompt and answer together.
        patience_s: seconds that a waiting request lets higher priorities go before it.
        prefix_cache: whether computed blocks are kept for later requests.
        fingerprint: of the model; part of every block's digest.
    """

    groups: tuple[GroupLimits, ...]
    block_size: int
    max_step_tokens: int
    max_prompt_tokens: int
    max_running: int
    max_waiting: int
    max_length: int
    patience_s: float = 10.0
    prefix_cache: bool = True
    fingerprint: str = ""

    def row_cost(self, position: int) -> float:
        """What the row at a position costs; 1 for one that sees nothing."""
        seen = ((group, position if group.window is None else min(position, group.window)) for group in self.groups)
        return 1 + sum(group.cost_per_key * num_keys for group, num_keys in seen)


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
        priority: who goes first when not all can run: the smaller.
        salt: only requests with the same salt share cached blocks.
        fork_of: id of a request with the same prompt, whose blocks it shares instead of computing them.
        min_tokens: before the answer has so many, none of ``banned_ids`` can be chosen; for the executor.
        banned_ids: tokens that cannot be chosen at first; for the executor.
        dry_breakers: what breaks a repetition, if DRY is on; for the executor.
    """

    request_id: str
    token_ids: tuple[int, ...]
    max_tokens: int
    end_ids: tuple[int, ...]
    sampling: SamplingParams
    num_top: int = 0
    num_candidates: int = 0
    priority: int = 0
    salt: str = ""
    fork_of: str | None = None
    min_tokens: int = 0
    banned_ids: tuple[int, ...] = ()
    dry_breakers: DryBreakers = field(default_factory=DryBreakers)

    def banned_at(self, position: int) -> tuple[int, ...]:
        """The tokens that cannot be chosen for a position of the request."""
        return self.banned_ids if position - len(self.token_ids) < self.min_tokens else ()


@dataclass(frozen=True, slots=True)
class TableChange:
    """From entry ``first`` on, the block table of a request for ``group`` reads ``blocks``. Entries before stay."""

    group: int
    first: int
    blocks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """What block ``source`` of ``group`` holds is to be copied to ``target`` before the step writes."""

    group: int
    source: int
    target: int


class ScheduledRows(NamedTuple):
    """Consecutive positions of one request that a step computes. A tuple, since a step makes hundreds of them.

    Attributes:
        request_id: whose.
        start: position of the first row; keys and values of those before are in the cache.
        num_rows: number of rows.
        changes: what this step changes in the request's block tables; at most one entry a group.
        needs_sample: the last row is the last known token, so a next token is to be chosen after it.
    """

    request_id: str
    start: int
    num_rows: int
    changes: tuple[TableChange, ...]
    needs_sample: bool


class Action(StrEnum):
    """What a plan decided about a request that was not simply continued."""

    ADMITTED = "admitted"
    WAITING = "waiting"
    PREEMPTED = "preempted"


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision and why: the glass shows it, nothing acts on it. That one waits is said again if the kind changes.

    Attributes:
        request_id: about whom.
        action: what was decided.
        kind: the reason in a word that programs can compare: ``no blocks``, ``step budget``, ``running limit`` ...
        reason: the reason with its numbers.
    """

    request_id: str
    action: Action
    kind: str
    reason: str


class Miss(StrEnum):
    """Why no more of a prompt was found in the cache."""

    NONE = "every full block was found"
    OFF = "the prefix cache is off"
    SHORT = "no full block before the last token"
    UNKNOWN = "no such chain"
    DIFFERENT = "first differing token"
    EVICTED = "evicted"
    OTHER_SALT = "other salt"
    WINDOW_GONE = "window part gone"


@dataclass(frozen=True, slots=True)
class PrefixLookup:
    """What an admitted request found in the cache.

    Attributes:
        request_id: whose prompt.
        num_cached: tokens that need not be computed.
        miss: why not more.
        at: position of the first token that differs from what the cache has, where ``miss`` says that one does.
        fork_of: the request whose blocks it shares, if it is a fork.
    """

    request_id: str
    num_cached: int
    miss: Miss
    at: int | None = None
    fork_of: str | None = None


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step, complete: whoever executes it needs nothing else but the earlier plans.

    Attributes:
        plan_id: counts up from 0.
        released: requests whose state can be dropped before this step; no later plan names them.
        preempted: requests whose block tables are empty from now on; their tokens stay.
        new: requests that appear in a plan for the first time.
        copies: blocks to copy before anything is computed.
        rows: what to compute; never two entries for one request.
        lookups: what admitted requests found in the cache.
        decisions: who was admitted, who waits, who was preempted, and why.
        budget_left: rows that the step had room for beyond ``rows``.
    """

    plan_id: int
    released: tuple[str, ...]
    preempted: tuple[str, ...]
    new: tuple[NewRequest, ...]
    copies: tuple[BlockCopy, ...]
    rows: tuple[ScheduledRows, ...]
    lookups: tuple[PrefixLookup, ...]
    decisions: tuple[Decision, ...]
    budget_left: int

    @property
    def num_tokens(self) -> int:
        """Rows of all requests together."""
        return sum(rows.num_rows for rows in self.rows)


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


class TokenGenerated(NamedTuple):
    """A request has one more token. A tuple, since a step makes hundreds of them."""

    request_id: str
    choice: TokenChoice


@dataclass(frozen=True, slots=True)
class RequestFinished:
    """A request reached its one terminal outcome.

    Attributes:
        request_id: whose.
        reason: which kind of end.
        cause: what ended it, in words.
        num_prompt_tokens: length of the prompt.
        num_cached_tokens: prompt tokens that were found in the cache when it was first admitted.
        num_generated_tokens: tokens chosen, an end token included.
        num_blocks: blocks that it held and gives back, of all groups.
        end_id: the end token that ended it, if one did.
    """

    request_id: str
    reason: FinishReason
    cause: str
    num_prompt_tokens: int
    num_cached_tokens: int
    num_generated_tokens: int
    num_blocks: int
    end_id: int | None = None


Outcome = TokenGenerated | RequestFinished
