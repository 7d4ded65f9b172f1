"""Gathers receipts at the seams of the engine: from plans, results, outcomes and deltas.

Nothing inside the scheduler, the models or the sampler knows that it is watched; what they return *is* the facts.
Owns the receipts of requests that have not finished.
"""

from dataclasses import dataclass, field, replace

from cutaway.glass.receipt import (
    DeltaFacts,
    FinishFacts,
    Marks,
    ModelFacts,
    PromptFacts,
    Receipt,
    RequestFacts,
    Spelling,
    StepFacts,
    TokenFacts,
)
from cutaway.scheduler.plan import (
    Decision,
    NewRequest,
    PrefixLookup,
    RequestFinished,
    StepPlan,
    StepResult,
    TokenGenerated,
)
from cutaway.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Asked:
    """What is known about a request before the scheduler has it; for the times see ``Marks``."""

    request: RequestFacts
    prompt: PromptFacts
    received_ns: int
    rendered_ns: int
    tokenized_ns: int


@dataclass(slots=True)
class _Draft:
    """The receipt of a live request, as far as it has come."""

    request: RequestFacts
    asked: Asked
    queued_ns: int
    detokenize_ns: int = 0
    decisions: list[Decision] = field(default_factory=list)
    lookup: PrefixLookup | None = None
    steps: list[StepFacts] = field(default_factory=list)
    tokens: list[TokenFacts] = field(default_factory=list)
    deltas: list[DeltaFacts] = field(default_factory=list)

    @property
    def prompt(self) -> PromptFacts:
        """The prompt."""
        return self.asked.prompt


class Recorder:
    """Writes receipts.

    Args:
        model: the model that answers.
        tokenizer: spells tokens.
    """

    def __init__(self, model: ModelFacts, tokenizer: Tokenizer) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self._drafts: dict[str, _Draft] = {}

    def queued(self, new: NewRequest, index: int, asked: Asked, at_ns: int) -> None:
        """Open the receipt of a copy of a request that the scheduler now has."""
        request = replace(asked.request, sampling=new.sampling, index=index)
        self._drafts[new.request_id] = _Draft(request, asked, at_ns)

    def stepped(self, plan: StepPlan, result: StepResult, begin_ns: int, end_ns: int) -> None:
        """Note a step in the receipt of each request that it computed, and each decision with its reason."""
        for decision in plan.decisions:
            self._drafts[decision.request_id].decisions.append(decision)
        for lookup in plan.lookups:
            draft = self._drafts[lookup.request_id]
            draft.lookup = draft.lookup or lookup
        num_tokens = plan.num_tokens
        for index, rows in enumerate(plan.rows):
            draft = self._drafts[rows.request_id]
            draft.steps.append(
                StepFacts(
                    step_id=plan.plan_id,
                    phase="prefill" if rows.start < len(draft.prompt.token_ids) else "decode",
                    start=rows.start,
                    count=rows.num_rows,
                    batch_index=index,
                    num_requests=len(plan.rows),
                    num_tokens=num_tokens,
                    budget_left=plan.budget_left,
                    changes=rows.changes,
                    sampled=rows.needs_sample,
                    begin_ns=begin_ns,
                    end_ns=end_ns,
                    prepare_ns=result.times.prepare_ns,
                    forward_ns=result.times.forward_ns,
                    sample_ns=result.times.sample_ns,
                )
            )

    def generated(self, outcome: TokenGenerated) -> None:
        """Note a chosen token."""
        draft = self._drafts[outcome.request_id]
        position = len(draft.prompt.token_ids) + len(draft.tokens)
        draft.tokens.append(TokenFacts(draft.steps[-1].step_id, position, outcome.choice))

    def delivered(self, request_id: str, delta: DeltaFacts, detokenize_ns: int) -> None:
        """Note a piece of text."""
        draft = self._drafts[request_id]
        draft.detokenize_ns += detokenize_ns
        draft.deltas.append(delta)

    def finished(self, outcome: RequestFinished, num_blocks_free: int, at_ns: int) -> Receipt:
        """Close the receipt."""
        draft = self._drafts.pop(outcome.request_id)
        return Receipt(
            request_id=outcome.request_id,
            model=self.model,
            request=draft.request,
            prompt=draft.prompt,
            decisions=tuple(draft.decisions),
            lookup=draft.lookup,
            steps=tuple(draft.steps),
            tokens=tuple(draft.tokens),
            spellings={token_id: spell(self.tokenizer, token_id) for token_id in _mentioned(draft)},
            deltas=tuple(draft.deltas),
            finish=FinishFacts(
                outcome.reason,
                outcome.cause,
                outcome.end_id,
                outcome.num_prompt_tokens,
                outcome.num_cached_tokens,
                outcome.num_generated_tokens,
                outcome.num_blocks,
                num_blocks_free,
            ),
            marks=Marks(
                draft.asked.received_ns,
                draft.asked.rendered_ns,
                draft.asked.tokenized_ns,
                draft.queued_ns,
                draft.detokenize_ns,
                at_ns,
            ),
        )


def spell(tokenizer: Tokenizer, token_id: int) -> Spelling:
    """How a vocabulary writes a token."""
    return Spelling(tokenizer.piece(token_id), tokenizer.token_bytes(token_id), tokenizer.is_special(token_id))


def _mentioned(draft: _Draft) -> set[int]:
    """Every token id that the receipt names."""
    token_ids = set(draft.prompt.token_ids)
    for token in draft.tokens:
        token_ids.add(token.choice.token_id)
        token_ids.update(candidate.token_id for candidate in token.choice.top)
        for stage in token.choice.stages:
            token_ids.update(candidate.token_id for candidate in stage.top)
    return token_ids
