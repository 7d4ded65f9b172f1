"""Gathers receipts at the seams of the engine: from plans, results, outcomes and deltas.

Nothing inside the scheduler, the models or the sampler knows that it is watched; what they return *is* the facts.
Owns the receipts of live requests and a bounded number of finished ones.
"""

from collections import OrderedDict

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
from cutaway.scheduler.plan import Decision, PrefixLookup, RequestFinished, StepPlan, StepResult, TokenGenerated
from cutaway.text.tokenizer import Tokenizer

MAX_FINISHED_RECEIPTS = 64


class Draft:
    """The receipt of a live request, as far as it has come."""

    def __init__(
        self, request: RequestFacts, prompt: PromptFacts, received_ns: int, rendered_ns: int, tokenized_ns: int
    ) -> None:
        self.request = request
        self.prompt = prompt
        self.received_ns = received_ns
        self.rendered_ns = rendered_ns
        self.tokenized_ns = tokenized_ns
        self.queued_ns = tokenized_ns
        self.detokenize_ns = 0
        self.decisions: list[Decision] = []
        self.lookup: PrefixLookup | None = None
        self.steps: list[StepFacts] = []
        self.tokens: list[TokenFacts] = []
        self.deltas: list[DeltaFacts] = []


class Recorder:
    """Writes receipts.

    Args:
        model: the model that answers.
        tokenizer: spells tokens.
        max_finished: receipts of finished requests to keep; the oldest go first.
    """

    def __init__(self, model: ModelFacts, tokenizer: Tokenizer, max_finished: int = MAX_FINISHED_RECEIPTS) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.max_finished = max_finished
        self._drafts: dict[str, Draft] = {}
        self._finished: OrderedDict[str, Receipt] = OrderedDict()

    def receipt(self, request_id: str) -> Receipt | None:
        """The receipt of a finished request, if it is still kept."""
        return self._finished.get(request_id)

    def queued(self, request_id: str, draft: Draft, at_ns: int) -> None:
        """Open the receipt of a request that the scheduler now has."""
        draft.queued_ns = at_ns
        self._drafts[request_id] = draft

    def stepped(self, plan: StepPlan, result: StepResult, begin_ns: int, end_ns: int) -> None:
        """Note a step in the receipt of each request that it computed, and each decision with its reason."""
        for decision in plan.decisions:
            draft = self._drafts.get(decision.request_id)
            if draft is not None:
                draft.decisions.append(decision)
        for lookup in plan.lookups:
            draft = self._drafts.get(lookup.request_id)
            if draft is not None and draft.lookup is None:
                draft.lookup = lookup
        num_tokens = plan.num_tokens
        for index, rows in enumerate(plan.rows):
            draft = self._drafts.get(rows.request_id)
            if draft is None:
                continue
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
        draft = self._drafts.get(outcome.request_id)
        if draft is not None:
            position = len(draft.prompt.token_ids) + len(draft.tokens)
            draft.tokens.append(TokenFacts(draft.steps[-1].step_id, position, outcome.choice))

    def delivered(self, request_id: str, delta: DeltaFacts, detokenize_ns: int) -> None:
        """Note a piece of text."""
        draft = self._drafts.get(request_id)
        if draft is not None:
            draft.detokenize_ns += detokenize_ns
            draft.deltas.append(delta)

    def finished(self, outcome: RequestFinished, num_blocks_free: int, at_ns: int) -> None:
        """Close the receipt."""
        draft = self._drafts.pop(outcome.request_id, None)
        if draft is None:
            return
        self._finished[outcome.request_id] = Receipt(
            request_id=outcome.request_id,
            model=self.model,
            request=draft.request,
            prompt=draft.prompt,
            decisions=tuple(draft.decisions),
            lookup=draft.lookup,
            steps=tuple(draft.steps),
            tokens=tuple(draft.tokens),
            spellings={token_id: self._spell(token_id) for token_id in _mentioned(draft)},
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
                draft.received_ns,
                draft.rendered_ns,
                draft.tokenized_ns,
                draft.queued_ns,
                draft.detokenize_ns,
                at_ns,
            ),
        )
        while len(self._finished) > self.max_finished:
            self._finished.popitem(last=False)

    def _spell(self, token_id: int) -> Spelling:
        tokenizer = self.tokenizer
        return Spelling(tokenizer.piece(token_id), tokenizer.token_bytes(token_id), tokenizer.is_special(token_id))


def _mentioned(draft: Draft) -> set[int]:
    """Every token id that the receipt names."""
    token_ids = set(draft.prompt.token_ids)
    for token in draft.tokens:
        token_ids.add(token.choice.token_id)
        token_ids.update(candidate.token_id for candidate in token.choice.top)
        for stage in token.choice.stages:
            token_ids.update(candidate.token_id for candidate in stage.top)
    return token_ids
