"""From one row of logits to one token, with the facts of the choice.

Owns the order of the settings: logit bias, bans, penalties, DRY, temperature, top-nσ, min-p, top-k, typical-p, top-p,
XTC, draw. Refuses to know batches and requests. Invariants: the choice depends on nothing but the row, the settings,
the tokens before it and the position; what is reported never changes what is chosen; equal logits are told apart by
the lower token id, everywhere.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from cutaway.errors import GenerationError
from cutaway.kernels.softmax import RowScan, scan_row
from cutaway.sampling.bias import add_bias, ban
from cutaway.sampling.distribution import Distribution
from cutaway.sampling.dry import Repetition, has_dry, penalize_repetition
from cutaway.sampling.filters import Stage, exclude_top_choices, keep_n_sigma, keep_typical
from cutaway.sampling.order import FallingOrder, Logits
from cutaway.sampling.penalties import TokenCounts, has_penalties, penalize
from cutaway.sampling.random import Purpose, uniform
from cutaway.types import Draw, SamplerStage, SamplingParams, TokenChoice


def choose(
    logits: Logits,
    params: SamplingParams,
    counts: TokenCounts,
    position: int,
    num_top: int = 0,
    num_candidates: int = 0,
    scan: RowScan | None = None,
    banned_ids: Sequence[int] = (),
    repetition: Repetition | None = None,
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
        repetition: of the tokens before it, for DRY; must be there if that is on.

    Raises:
        GenerationError: a logit is NaN or +inf, all are -inf or banned, or the penalties drive one out of float32's
            range.
    """
    order = _checked_order(logits, scan)
    stages = [Stage("logits", Distribution(order), order.num_tokens)]
    for name, adjusted in _adjusted(order.logits, params, counts, banned_ids, repetition):
        stages.append(_stage_of(name, adjusted))
    stages += _filtered(stages[-1], params, position)
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


def _adjusted(
    logits: Logits,
    params: SamplingParams,
    counts: TokenCounts,
    banned_ids: Sequence[int],
    repetition: Repetition | None,
) -> Iterator[tuple[str, Logits]]:
    """The row after each setting that changes scores, with the setting's name, in the order of application."""
    if params.logit_bias:
        logits = add_bias(logits, params.logit_bias)
        yield "logit_bias", logits
    if banned_ids:
        logits = ban(logits, banned_ids)
        yield "min_tokens", logits
    if has_penalties(params):
        logits = penalize(logits, params, counts)
        yield "penalties", logits
    if has_dry(params):
        assert repetition is not None, "DRY looks at the tokens before"
        logits = penalize_repetition(logits, params, repetition)
        yield "dry", logits


def _stage_of(name: str, logits: Logits) -> Stage:
    """The stage after a setting that changed scores."""
    order = FallingOrder(logits)
    if not order.num_tokens:
        raise GenerationError(
            f"no token can be chosen: {name} bans all that the model allows", hint="leave it out, or make it smaller"
        )
    return Stage(name, Distribution(order), order.num_tokens)


def _filtered(stage: Stage, params: SamplingParams, position: int) -> Iterator[Stage]:
    """What each setting that drops tokens leaves, after the temperature, in the order of application."""
    if params.temperature == 0:
        yield stage.cut("temperature", 1)
        return
    if params.temperature != 1:
        tempered = Distribution(stage.distribution.order, params.temperature)
        yield (stage := Stage("temperature", tempered, stage.num_kept))
    if params.top_n_sigma > 0:
        yield (stage := keep_n_sigma(stage, params.top_n_sigma))
    if params.min_p > 0:  # Nguyen et al., 2024: p >= min_p * p_max
        yield (stage := stage.cut("min_p", stage.distribution.num_above_ratio(params.min_p)))
    if params.top_k > 0:
        yield (stage := stage.cut("top_k", params.top_k))
    if params.typical_p < 1:
        yield (stage := keep_typical(stage, params.typical_p))
    if params.top_p < 1:  # Holtzman et al., 2020: the smallest set whose probability reaches top_p
        num_kept = stage.distribution.num_reaching(params.top_p, stage.num_kept, "left")
        yield (stage := stage.cut("top_p", num_kept))
    if params.xtc_probability > 0:
        applies = uniform(params.seed, position, Purpose.XTC) < params.xtc_probability
        yield exclude_top_choices(stage, params.xtc_threshold, applies)


def _reports(stages: list[Stage], num_candidates: int) -> tuple[SamplerStage, ...]:
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
