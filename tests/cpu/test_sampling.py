"""The sampler against a slow one in plain Python that follows the definitions word for word."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from cutaway.errors import GenerationError
from cutaway.sampling.distribution import Distribution
from cutaway.sampling.order import FallingOrder
from cutaway.sampling.penalties import TokenCounts
from cutaway.sampling.random import Purpose, uniform
from cutaway.sampling.sampler import choose
from cutaway.types import SamplingParams, TokenChoice

ALL = 10**6  # more candidates than any row here has tokens


@dataclass(frozen=True)
class SlowStage:
    name: str
    probabilities: dict[int, float]  # most likely first
    mass_removed: float


def slow_softmax(logits: list[float], temperature: float = 1.0) -> dict[int, float]:
    best = max(logits)
    weights = {i: math.exp((logit - best) / temperature) for i, logit in enumerate(logits) if logit > -math.inf}
    total = math.fsum(weights.values())
    in_order = sorted(weights, key=lambda i: (-logits[i], i))
    return {i: weights[i] / total for i in in_order}


def slow_cut(name: str, before: dict[int, float], kept: list[int]) -> SlowStage:
    mass = math.fsum(before[i] for i in kept)
    return SlowStage(name, {i: before[i] / mass for i in kept}, 1 - mass)


def slow_penalties(logits: list[float], params: SamplingParams, prompt: list[int], output: list[int]) -> list[float]:
    after = []
    for i, logit in enumerate(logits):
        if i in prompt or i in output:
            logit = logit / params.repetition_penalty if logit > 0 else logit * params.repetition_penalty
        logit -= params.frequency_penalty * output.count(i)
        logit -= params.presence_penalty if i in output else 0
        after.append(float(np.float32(logit)))
    return after


def slow_stages(
    logits: list[float], params: SamplingParams, prompt: list[int] | None = None, output: list[int] | None = None
) -> list[SlowStage]:
    now = slow_softmax(logits)
    stages = [SlowStage("logits", now, 0.0)]
    if (params.repetition_penalty, params.presence_penalty, params.frequency_penalty) != (1, 0, 0):
        logits = slow_penalties(logits, params, prompt or [], output or [])
        now = slow_softmax(logits)
        stages.append(SlowStage("penalties", now, 0.0))
    if params.temperature == 0:
        return [*stages, slow_cut("temperature", now, [next(iter(now))])]
    if params.temperature != 1:
        now = slow_softmax(logits, params.temperature)
        stages.append(SlowStage("temperature", now, 0.0))
    if params.min_p:
        best = max(now.values())
        stages.append(slow_cut("min_p", now, [i for i in now if now[i] / best >= params.min_p]))
    now = stages[-1].probabilities
    if params.top_k:
        stages.append(slow_cut("top_k", now, list(now)[: params.top_k]))
    now = stages[-1].probabilities
    if params.top_p < 1:
        kept: list[int] = []
        while math.fsum(now[i] for i in kept) < params.top_p and len(kept) < len(now):
            kept.append(list(now)[len(kept)])
        stages.append(slow_cut("top_p", now, kept))
    return stages


def row(values: list[float] | np.ndarray) -> torch.Tensor:
    return torch.tensor(np.asarray(values), dtype=torch.float32)


def pick(logits: torch.Tensor, position: int = 0, **settings: float) -> TokenChoice:
    """One choice with everything reported."""
    return choose(logits, SamplingParams(**settings), TokenCounts(), position, num_top=ALL, num_candidates=ALL)


def normal_row(num_tokens: int, seed: int, scale: float = 2.0) -> torch.Tensor:
    return row(np.random.default_rng(seed).normal(0, scale, num_tokens))


ROWS = {
    "random": normal_row(50, 1),
    "random, larger than the first sorted prefix": normal_row(700, 2, scale=1.0),
    "flat": row([0.5] * 10),
    "ties": row([1.0, 2.0, 1.0, 2.0, 0.0, 2.0, 1.0, 0.0, -0.0, 1.0]),
    "one token": row([3.0]),
    "one token left": row([-math.inf, -math.inf, 1.5, -math.inf]),
    "some banned": row([0.0, -math.inf, 1.0, 1.0, -math.inf, -3.0]),
    "huge": row([3e38, -3e38, 3e38, 0.0]),
    "huge and close": row([10_000.0, 9_999.5, 9_999.0, -10_000.0]),
    "weights at the end of float64": row([0.0, 0.0, 0.0, -745.0, -740.0, -800.0]),
    "peaked": row([30.0, 0.0, 0.0, -5.0, 1.0]),
}
SETTINGS = [
    {},
    {"temperature": 2.0},
    {"temperature": 0.3},
    {"temperature": 1e-3},
    {"temperature": 0.0},
    {"temperature": 0.0, "top_k": 3, "top_p": 0.5, "min_p": 0.5},
    {"top_k": 1},
    {"top_k": 3},
    {"top_k": 1_000_000},
    {"top_p": 1e-9},
    {"top_p": 0.5},
    {"top_p": 0.9},
    {"top_p": 1 - 1e-9},
    {"min_p": 1e-9},
    {"min_p": 0.1},
    {"min_p": 1.0},
    {"temperature": 0.7, "top_k": 4, "top_p": 0.8},
    {"temperature": 1.5, "min_p": 0.02, "top_k": 6, "top_p": 0.95},
    {"repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": -0.25},
    {"repetition_penalty": 1.3, "frequency_penalty": 0.5, "temperature": 0.8, "min_p": 0.01, "top_k": 5, "top_p": 0.9},
    {"repetition_penalty": 2.0, "temperature": 0.0},
]
PROMPT, OUTPUT = [0, 0], [0]  # every row has token 0


def finite(probabilities: dict[int, float]) -> dict[int, float]:
    """Those that still are above what float64 holds; the rest can have a finite logprob, but no weight."""
    return {i: p for i, p in probabilities.items() if p > 0}


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("name", ROWS)
def test_every_stage_keeps_and_removes_what_its_definition_says(name, settings):
    logits = ROWS[name]
    params = SamplingParams(**settings)
    choice = choose(logits, params, TokenCounts(PROMPT, OUTPUT), 0, num_candidates=ALL)
    expected = slow_stages(logits.tolist(), params, PROMPT, OUTPUT)
    assert [stage.name for stage in choice.stages] == [stage.name for stage in expected]
    for stage, slow in zip(choice.stages, expected, strict=True):
        assert stage.num_kept == len(slow.probabilities), stage.name
        assert stage.mass_removed == pytest.approx(slow.mass_removed, abs=1e-12)
        got = {candidate.token_id: math.exp(candidate.logprob) for candidate in stage.top}
        assert list(got)[: len(finite(slow.probabilities))] == list(finite(slow.probabilities))
        assert finite(got) == pytest.approx(finite(slow.probabilities), rel=1e-9, abs=1e-300)
    final = expected[-1].probabilities
    assert choice.draw.probability == pytest.approx(final[choice.token_id], rel=1e-9)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("name", ROWS)
def test_masses_multiply_to_the_probability_that_the_kept_tokens_had(name, settings):
    params = SamplingParams(**settings)
    logits = ROWS[name]
    stages = choose(logits, params, TokenCounts(PROMPT, OUTPUT), 0, num_candidates=ALL).stages
    assert stages[0].mass_removed == 0
    for stage in stages:
        assert 0 <= stage.mass_removed < 1
        assert math.fsum(math.exp(candidate.logprob) for candidate in stage.top) == pytest.approx(1, abs=1e-9)
    if len(stages) == 1 or params.temperature == 0:
        return
    cuts = [stage for stage in stages if stage.name in ("min_p", "top_k", "top_p")]
    whole = next(stage for stage in reversed(stages) if stage not in cuts)
    had = {candidate.token_id: math.exp(candidate.logprob) for candidate in whole.top}
    left = math.prod(1 - stage.mass_removed for stage in cuts)
    assert left == pytest.approx(math.fsum(had[candidate.token_id] for candidate in stages[-1].top), abs=1e-9)


@pytest.mark.parametrize("num_candidates", [1, 3, 20])
def test_a_stage_reports_as_many_candidates_as_asked_for_and_renormalizes_over_all_kept(num_candidates):
    logits = ROWS["random"]
    params = SamplingParams(top_k=10, top_p=0.9)
    short = choose(logits, params, TokenCounts(), 0, num_candidates=num_candidates)
    full = choose(logits, params, TokenCounts(), 0, num_candidates=ALL)
    for few, many in zip(short.stages, full.stages, strict=True):
        assert few.top == many.top[:num_candidates]
        assert len(few.top) == min(num_candidates, many.num_kept)
        assert math.fsum(math.exp(candidate.logprob) for candidate in few.top) <= 1 + 1e-6


def test_stages_are_reported_only_when_candidates_are_asked_for():
    params = SamplingParams(temperature=0.5, top_k=3, repetition_penalty=1.2)
    assert choose(ROWS["random"], params, TokenCounts(), 0).stages == ()


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_looking_never_changes_the_choice(settings):
    params = SamplingParams(**settings)
    for logits in ROWS.values():
        for position in range(20):
            blind = choose(logits, params, TokenCounts(PROMPT, OUTPUT), position)
            seen = choose(logits, params, TokenCounts(PROMPT, OUTPUT), position, num_top=20, num_candidates=20)
            assert (blind.token_id, blind.logprob, blind.rank, blind.draw) == (
                seen.token_id,
                seen.logprob,
                seen.rank,
                seen.draw,
            )


# --- the raw distribution


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("name", ROWS)
def test_logprob_rank_and_top_come_from_the_untouched_logits(name, settings):
    logits = ROWS[name]
    choice = choose(logits, SamplingParams(**settings), TokenCounts(PROMPT, OUTPUT), 3, num_top=5)
    values = logits.tolist()
    in_order = [i for i in sorted(range(len(values)), key=lambda i: (-values[i], i)) if values[i] > -math.inf]
    logprobs = torch.log_softmax(logits.double(), dim=0).tolist()
    assert choice.logprob == pytest.approx(logprobs[choice.token_id], rel=1e-12, abs=1e-12)
    assert choice.rank == in_order.index(choice.token_id) + 1
    assert [candidate.token_id for candidate in choice.top] == in_order[:5]
    assert [candidate.logprob for candidate in choice.top] == pytest.approx(
        [logprobs[i] for i in in_order[:5]], rel=1e-12, abs=1e-12
    )
    if choice.rank <= 5:
        assert choice.top[choice.rank - 1].logprob == choice.logprob


def test_no_top_is_reported_when_none_is_asked_for():
    assert choose(ROWS["random"], SamplingParams(), TokenCounts(), 0).top == ()


# --- greedy


def test_greedy_takes_the_lowest_id_of_equal_logits_and_draws_nothing():
    choice = pick(row([1.0, 2.0, 0.0, 2.0, 2.0]), temperature=0)
    assert choice.token_id == 1
    assert choice.rank == 1
    assert (choice.draw.uniform, choice.draw.low, choice.draw.high, choice.draw.probability) == (None, 0.0, 1.0, 1.0)


def test_greedy_takes_positive_and_negative_zero_for_equal():
    assert pick(row([-1.0, -0.0, 0.0]), temperature=0).token_id == 1


def test_greedy_obeys_penalties_and_reports_the_raw_rank():
    params = SamplingParams(temperature=0, repetition_penalty=2.0)
    choice = choose(row([4.0, 3.0, 1.0]), params, TokenCounts([0]), 0)
    assert (choice.token_id, choice.rank) == (1, 2)


def test_greedy_ignores_seed_and_position():
    choices = {
        choose(ROWS["random"], SamplingParams(temperature=0, seed=s), TokenCounts(), p) for s in (0, 9) for p in (0, 5)
    }
    assert len(choices) == 1


# --- the draw

DRAWN = [
    {"temperature": 1.0},
    {"temperature": 1.7},
    {"temperature": 0.6, "top_k": 8},
    {"top_p": 0.85},
    {"min_p": 0.15},
    {"temperature": 1.2, "min_p": 0.05, "top_k": 12, "top_p": 0.9, "repetition_penalty": 1.4, "presence_penalty": 0.3},
]


@pytest.mark.parametrize("seeds", ["one seed, many positions", "one position, many seeds"])
@pytest.mark.parametrize("settings", DRAWN, ids=str)
def test_draws_follow_the_exact_distribution(settings, seeds):
    num_draws = 10_000
    logits = normal_row(25, 5, scale=1.5)
    counts = TokenCounts([1, 2, 3], [3, 4])
    observed = dict.fromkeys(range(25), 0)
    for draw in range(num_draws):
        seed, position = (17, draw) if seeds.startswith("one seed") else (draw, 17)
        observed[choose(logits, SamplingParams(**settings, seed=seed), counts, position).token_id] += 1
    final = slow_stages(logits.tolist(), SamplingParams(**settings), [1, 2, 3], [3, 4])[-1].probabilities
    assert all(count == 0 for token_id, count in observed.items() if token_id not in final)
    often = [token_id for token_id in final if final[token_id] * num_draws >= 5]
    expected = [final[token_id] * num_draws for token_id in often]
    counted = [observed[token_id] for token_id in often]
    if len(often) < len(final):  # the rare ones together
        expected.append(num_draws - math.fsum(expected))
        counted.append(num_draws - sum(counted))
    assert stats.chisquare(counted, expected).pvalue > 1e-3


def test_the_same_seed_gives_the_same_tokens_and_another_seed_others():
    def tokens(seed: int) -> list[int]:
        return [pick(ROWS["random"], position, seed=seed).token_id for position in range(64)]

    assert tokens(3) == tokens(3)
    assert len({tuple(tokens(seed)) for seed in range(8)}) == 8


def test_the_uniform_number_is_the_one_of_seed_position_and_purpose():
    assert pick(ROWS["random"], 41, seed=-6).draw.uniform == uniform(-6, 41, Purpose.TOKEN)


LOGIT_LISTS = st.lists(
    st.floats(-50, 50, width=32) | st.sampled_from([0.0, -math.inf, 3e38, -3e38]), min_size=1, max_size=30
).filter(lambda values: max(values) > -math.inf)
ANY_SETTINGS = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([1e-300, 1e-3, 0.5, 1.0, 2.0]),
        "top_p": st.floats(0.01, 1.0),
        "top_k": st.integers(0, 40),
        "min_p": st.floats(0, 1),
    }
)


@given(LOGIT_LISTS, ANY_SETTINGS, st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**40))
def test_the_uniform_number_always_lies_in_the_tokens_interval(values, settings, seed, position):
    draw = pick(row(values), position, **settings, seed=seed).draw
    assert 0 <= draw.low <= draw.uniform < draw.high <= 1
    assert 0 < draw.probability <= 1
    assert draw.high - draw.low == pytest.approx(draw.probability, abs=1e-12)


@given(LOGIT_LISTS, ANY_SETTINGS, st.floats(0, 1, exclude_max=True))
@example([0.0] * 10, {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0}, 1 - 2**-53)
@example([0.0, -40.0, -800.0], {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0}, 1 - 2**-53)
def test_any_number_finds_a_token_with_weight_whose_interval_holds_it(values, settings, number):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cutaway.sampling.sampler.uniform", lambda seed, position, purpose: number)
        choice = pick(row(values), **settings)
    assert choice.draw.low <= number < choice.draw.high
    assert choice.draw.probability > 0
    assert values[choice.token_id] > -math.inf


@pytest.mark.parametrize("name", ROWS)
def test_the_intervals_tile_zero_to_one_in_falling_order(name):
    logits = np.asarray(ROWS[name])
    distribution = Distribution(FallingOrder(logits))
    num_kept = distribution.order.num_tokens
    at, seen = 0.0, []
    while at < 1:
        token_id, draw = distribution.draw(at, num_kept)
        assert draw.low == at  # begins where the last one ended, to the bit
        seen.append(token_id)
        at = draw.high
    wide_enough = [i for i, p in slow_softmax(logits.tolist()).items() if p > 1e-16]
    assert seen == wide_enough


def test_a_draw_is_the_same_whether_the_row_was_sorted_before_or_not():
    logits = np.asarray(normal_row(6_000, 8, scale=0.5))
    for number in np.linspace(0, 1, 50, endpoint=False).tolist():
        lazy, eager = Distribution(FallingOrder(logits)), Distribution(FallingOrder(logits))
        eager.order.prefix(logits.size)
        assert lazy.draw(number, logits.size) == eager.draw(number, logits.size)


def test_the_smallest_temperatures_take_the_best_tokens_without_overflow():
    for temperature in (1e-3, 1e-30, 5e-324):
        choice = pick(row([1.0, 3.0, 2.0, 3.0]), temperature=temperature)
        assert choice.token_id in (1, 3)
        assert choice.draw.probability == 0.5
        assert all(math.isfinite(candidate.logprob) for stage in choice.stages for candidate in stage.top)


# --- what is not finite


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0.0, math.nan, 1.0], "1 of 3 logits are not finite"),
        ([math.inf, math.nan, math.inf, -math.inf], "3 of 4 logits are not finite"),
        ([math.inf, 1.0], "1 of 2 logits are not finite"),
        ([-math.inf] * 3, "no token can be chosen: all 3 logits are -inf"),
        ([-math.inf, math.nan], "1 of 2 logits are not finite"),
        ([math.nan] * 2_000, "2,000 of 2,000 logits are not finite"),
    ],
)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_that_is_not_a_distribution_fails_its_request_and_says_how_much_is_wrong(values, message, temperature):
    with pytest.raises(GenerationError, match=message):
        pick(row(values), temperature=temperature)


def test_a_banned_token_is_never_reported_nor_chosen():
    values = [0.0, -math.inf, 0.0, -math.inf]
    for position in range(50):
        choice = pick(row(values), position)
        assert {candidate.token_id for candidate in choice.top} == {0, 2}
        assert choice.token_id in (0, 2)
        assert choice.stages[0].num_kept == 2


# --- company


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_row_gives_the_same_bits_alone_in_a_batch_and_strided(settings):
    params = SamplingParams(**settings)
    logits = normal_row(5_003, 9)
    batch = torch.randn(4, 5_003, generator=torch.Generator().manual_seed(0))
    batch[2] = logits
    columns = torch.full((5_003, 3), math.nan)
    columns[:, 1] = logits
    shifted = torch.cat([torch.zeros(1), logits])[1:]
    for position in range(5):
        choices = {
            choose(view, params, TokenCounts(PROMPT, OUTPUT), position, num_top=20, num_candidates=20)
            for view in (logits, batch[2], columns[:, 1], shifted, logits.clone().requires_grad_())
        }
        assert len(choices) == 1


def test_a_row_gives_the_same_bits_with_any_number_of_threads():
    logits = normal_row(200_000, 10)
    params = SamplingParams(temperature=0.9, top_p=0.5, top_k=500)
    before = torch.get_num_threads()
    try:
        choices = set()
        for num_threads in (1, 2, 4):
            torch.set_num_threads(num_threads)
            choices.add(choose(logits, params, TokenCounts(), 2, num_top=20, num_candidates=20))
    finally:
        torch.set_num_threads(before)
    assert len(choices) == 1


def test_choosing_leaves_the_logits_as_they_were():
    logits = ROWS["random"].clone()
    choose(logits, SamplingParams(temperature=0.5, repetition_penalty=2.0), TokenCounts(PROMPT), 0)
    assert torch.equal(logits, ROWS["random"])
