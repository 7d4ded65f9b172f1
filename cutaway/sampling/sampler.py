"""From one row of logits to one token, with the facts of the choice.

Owns the order of the settings: logit bias, bans, penalties, temperature, min-p, top-k, top-p, draw. Refuses to know
batches and requests. Invariants: the choice depends on nothing but the row, the settings, the tokens before it and the
position; what is reported never changes what is chosen; equal logits are told apart by the lower token id, everywhere.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cutaway.errors import GenerationError
from cutaway.kernels.softmax import RowScan, scan_row
from cutaway.sampling.bias import add_bias, ban
from cutaway.sampling.distribution import Distribution
from cutaway.sampling.order import FallingOrder, Logits
from cutaway.sampling.penalties import TokenCounts, has_penalties, penalize
from cutaway.sampling.random import Purpose, uniform
from cutaway.types import Draw, SamplerStage, SamplingParams, TokenChoice


@dataclass(frozen=True, slots=True)
class _Stage:
    """What a setting leaves: the ``num_kept`` most likely tokens of a distribution, which share its mass."""

    name: str
    distribution: Distribution
    num_kept: int

    def cut(self, name: str, num_kept: int) -> "_Stage":
        """The stage after a setting that keeps at most ``num_kept`` of these tokens."""
        return _Stage(name, self.distribution, min(num_kept, self.num_kept))


def choose(
    logits: Logits,
    params: SamplingParams,
    counts: TokenCounts,
    position: int,
    num_top: int = 0,
    num_candidates: int = 0,
    scan: RowScan | None = None,
    banned_ids: Sequence[int] = (),
) -> TokenChoice:
    """Choose a request's next token.

    Log-probability, rank and ``top`` come from the untouched logits, with a float64 softmax. At temperature 0 the
    most likely token after bias, bans and penalties is taken, nothing is drawn, and the other settings have nothing to
    do.

    Args:
        logits: float32 ``[vocab]``, with any stride; -inf bans a token.
        params: the settings.
        counts: the tokens seen so far, for the penalties.
        position: the chosen token's place in its request, for the random number.
        num_top: how many of the most likely tokens to report.
        num_candidates: how many candidates to report for each stage; 0 reports no stages.
        scan: what is known about the row already.
        banned_ids: tokens that cannot be chosen here, because the answer has not reached its ``min_tokens``.

    Raises:
        GenerationError: a logit is NaN or +inf, all are -inf or banned, or the penalties drive one out of float32's
            range.
    """
    stages = _stages(_checked_order(logits, scan), params, counts, banned_ids)
    raw, last = stages[0], stages[-1]
    if params.temperature == 0:
        token_id, draw = last.distribution.order.best_id, Draw(uniform=None, low=0.0, high=1.0, probability=1.0)
    else:
        token_id, draw = last.distribution.draw(uniform(params.seed, position, Purpose.TOKEN), last.num_kept)
    return TokenChoice(
        token_id=token_id,
        logprob=raw.distribution.logprob(token_id, raw.num_kept),
        rank=raw.distribution.order.rank(token_id),
        top=raw.distribution.top(num_top, raw.num_kept),
        draw=draw,
        stages=_reports(stages, num_candidates) if num_candidates else (),
    )


def _checked_order(logits: Logits, scan: RowScan | None) -> FallingOrder:
    """The tokens of a row, which is made contiguous and found fit for a softmax."""
    assert logits.ndim == 1, f"one row of logits, not {logits.shape}"
    assert logits.dtype == np.float32, f"float32 logits, not {logits.dtype}"
    row: Logits = np.ascontiguousarray(logits)  # [vocab]
    scan = scan_row(row) if scan is None else scan
    if scan.num_bad:
        raise GenerationError(
            f"{scan.num_bad:,} of {row.size:,} logits are not finite",
            hint="the numbers of this model overflow; try --dtype float32, and check the model file if it stays",
        )
    if not scan.num_tokens:
        raise GenerationError(f"no token can be chosen: all {row.size:,} logits are -inf")
    return FallingOrder(row, scan)


def _stages(
    order: FallingOrder, params: SamplingParams, counts: TokenCounts, banned_ids: Sequence[int]
) -> list[_Stage]:
    """The model's own distribution and what each setting that is on makes of it, in the order of application."""
    stages = [_Stage("logits", Distribution(order), order.num_tokens)]
    for name, logits in _adjusted(order.logits, params, counts, banned_ids):
        order = FallingOrder(logits)
        if not order.num_tokens:
            raise GenerationError(
                f"no token can be chosen: {name} bans all that the model allows",
                hint="leave it out, or make it smaller",
            )
        stages.append(_Stage(name, Distribution(order), order.num_tokens))
    if params.temperature == 0:
        stages.append(stages[-1].cut("temperature", 1))
        return stages
    if params.temperature != 1:
        stages.append(_Stage("temperature", Distribution(order, params.temperature), order.num_tokens))
    final = stages[-1].distribution
    if params.min_p > 0:  # Nguyen et al., 2024: p >= min_p * p_max
        stages.append(stages[-1].cut("min_p", final.num_above_ratio(params.min_p)))
    if params.top_k > 0:
        stages.append(stages[-1].cut("top_k", params.top_k))
    if params.top_p < 1:  # Holtzman et al., 2020: the smallest set whose probability reaches top_p
        num_kept = final.num_reaching(params.top_p, stages[-1].num_kept, "left")
        stages.append(stages[-1].cut("top_p", num_kept))
    return stages


def _adjusted(
    logits: Logits, params: SamplingParams, counts: TokenCounts, banned_ids: Sequence[int]
) -> Iterator[tuple[str, Logits]]:
    """The row after each setting that changes scores, with the setting's name."""
    if params.logit_bias:
        logits = add_bias(logits, params.logit_bias)
        yield "logit_bias", logits
    if banned_ids:
        logits = ban(logits, banned_ids)
        yield "min_tokens", logits
    if has_penalties(params):
        logits = penalize(logits, params, counts)
        yield "penalties", logits


def _reports(stages: list[_Stage], num_candidates: int) -> tuple[SamplerStage, ...]:
    """What each stage left over, with the mass that it took from the stage before it."""
    reports = []
    for before, stage in zip([stages[0], *stages], stages, strict=False):
        removed = 0.0
        if stage.num_kept < before.num_kept:
            mass = stage.distribution.mass(stage.num_kept) * stage.distribution.scale_in(before.distribution)
            removed = max(0.0, 1 - mass / before.distribution.mass(before.num_kept))
        top = stage.distribution.top(num_candidates, stage.num_kept)
        reports.append(SamplerStage(stage.name, stage.num_kept, removed, top))
    return tuple(reports)
