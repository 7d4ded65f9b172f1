"""The draw: exact distributions, reproducible numbers, and intervals that hold them."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sampling_reference import ROWS, normal_row, pick, row, slow_softmax, slow_stages
from scipy import stats

from cutaway.sampling.distribution import Distribution
from cutaway.sampling.order import FallingOrder
from cutaway.sampling.penalties import TokenCounts
from cutaway.sampling.random import Purpose, uniform
from cutaway.sampling.sampler import choose
from cutaway.types import SamplingParams

DRAWN = [
    {"temperature": 1.0},
    {"temperature": 1.7},
    {"temperature": 0.6, "top_k": 8},
    {"top_p": 0.85},
    {"min_p": 0.15},
    {"typical_p": 0.8},
    {"xtc_probability": 1.0, "xtc_threshold": 0.1},
    {"repetition_penalty": 1.4},
    {"presence_penalty": 0.7},
    {"frequency_penalty": 1.1},
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
        "typical_p": st.sampled_from([1.0, 0.5, 1e-9]),
        "top_n_sigma": st.sampled_from([0.0, 0.5]),
        "xtc_probability": st.sampled_from([0.0, 0.5, 1.0]),
        "xtc_threshold": st.sampled_from([0.0, 1e-9, 0.2]),
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


def rows_that_round(tail: float) -> list[tuple[np.ndarray, float]]:
    """Rows of 3,000 tokens and one of next to no weight, and what share of the whole the 3,000 sum up to."""
    rows = []
    for seed in range(20):
        logits = np.append(np.asarray(normal_row(3_000, seed)), np.float32(tail))
        weights = np.exp(logits.astype(np.float64) - logits.max())
        rows.append((logits, float(np.cumsum(np.sort(weights)[:0:-1])[-1] / weights.sum())))
    return rows


@pytest.mark.parametrize("tail", [-600.0, -2_000.0], ids=["tiny weight", "no weight"])
def test_what_rounding_leaves_over_goes_to_a_token_with_weight(tail):
    largest = 1 - 2**-53
    rows = rows_that_round(tail)
    assert any(share <= largest for _, share in rows)  # too little ...
    assert any(share > 1 for _, share in rows)  # ... and too much do occur
    for logits, _ in rows:
        token_id, draw = Distribution(FallingOrder(logits)).draw(largest, logits.size)
        assert draw.probability > 0
        assert draw.low <= largest < draw.high <= 1
        assert token_id < 3_000 or tail == -600.0


def test_rounding_never_makes_a_removed_mass_negative():
    rows = rows_that_round(-2_000.0)
    assert any(share > 1 for _, share in rows)
    for logits, _ in rows:
        stages = choose(row(logits), SamplingParams(top_k=3_000), TokenCounts(), 0, num_candidates=1).stages
        assert stages[-1].num_kept == 3_000
        assert 0 <= stages[-1].mass_removed < 1e-12


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
