"""What is measured of a finished request: the times that its client felt, and what it cost the cache.

Unlike the ledger, which splits the time of computing, these are intervals between moments of the request, whatever else
ran in them. They mean what vLLM's metrics of the same names mean.
Source: https://docs.vllm.ai/en/latest/design/metrics/ (interval calculations).
"""

from dataclasses import dataclass
from itertools import pairwise

from cutaway.glass.receipt import Receipt
from cutaway.scheduler.plan import Action, Miss


@dataclass(frozen=True, slots=True)
class Measures:
    """Of one copy of a request; times in nanoseconds, ``None`` where it did not come so far.

    Attributes:
        queue_ns: from the prompt as tokens to the first step that computed some of it.
        prefill_ns: from there to the first token.
        decode_ns: from the first to the last token; 0 for a single one.
        total_ns: from the engine's being asked to the end.
        token_ns: when each token was there, since the engine was asked.
        num_preemptions: how often it lost its place in the cache.
        num_queried: tokens of its prompt that the prefix cache was asked for; 0 for a copy that shares a prompt.
        num_hits: those that it had.
    """

    queue_ns: int | None
    prefill_ns: int | None
    decode_ns: int | None
    total_ns: int
    token_ns: tuple[int, ...]
    num_preemptions: int
    num_queried: int
    num_hits: int

    @property
    def token_gaps_ns(self) -> list[int]:
        """Between each token and the next."""
        return [after - before for before, after in pairwise(self.token_ns)]


def measure(receipt: Receipt) -> Measures:
    """The measures of a receipt."""
    marks, lookup = receipt.marks, receipt.lookup
    asked_ns = marks.received_ns
    begin_ns = receipt.steps[0].begin_ns if receipt.steps else None
    ends = {step.step_id: step.end_ns for step in receipt.steps}
    tokens = [ends[token.step_id] for token in receipt.tokens]
    has_asked = lookup is not None and lookup.fork_of is None and lookup.miss is not Miss.OFF
    return Measures(
        queue_ns=None if begin_ns is None else begin_ns - marks.tokenized_ns,
        prefill_ns=tokens[0] - begin_ns if tokens and begin_ns is not None else None,
        decode_ns=tokens[-1] - tokens[0] if tokens else None,
        total_ns=marks.finished_ns - asked_ns,
        token_ns=tuple(end_ns - asked_ns for end_ns in tokens),
        num_preemptions=sum(decision.action is Action.PREEMPTED for decision in receipt.decisions),
        num_queried=receipt.finish.num_prompt_tokens if has_asked else 0,
        num_hits=lookup.num_cached if has_asked and lookup is not None else 0,
    )
