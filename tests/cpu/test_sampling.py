"""The sampler against its definitions: stages, raw distribution, greedy, bad rows, company."""

import math

import numpy as np
import pytest
import scipy.special
from sampling_reference import ALL, OUTPUT, PROMPT, ROWS, SETTINGS, finite, normal_row, pick, row, slow_stages

from cutaway.errors import GenerationError
from cutaway.sampling.penalties import TokenCounts
from cutaway.sampling.sampler import choose
from cutaway.types import SamplingParams


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
    names = ("top_n_sigma", "min_p", "top_k", "typical_p", "top_p", "xtc")
    cuts = [stage for stage in stages if stage.name in names]
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
    logprobs = scipy.special.log_softmax(logits.astype(np.float64)).tolist()
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
    batch = np.random.default_rng(0).normal(size=(4, 5_003)).astype(np.float32)
    batch[2] = logits
    columns = np.full((5_003, 3), math.nan, dtype=np.float32)
    columns[:, 1] = logits
    shifted = np.concatenate((np.zeros(1, dtype=np.float32), logits))[1:]
    for position in range(5):
        choices = {
            choose(view, params, TokenCounts(PROMPT, OUTPUT), position, num_top=20, num_candidates=20)
            for view in (logits, batch[2], columns[:, 1], shifted)
        }
        assert len(choices) == 1


def test_choosing_leaves_the_logits_as_they_were():
    logits = ROWS["random"].copy()
    choose(logits, SamplingParams(temperature=0.5, repetition_penalty=2.0), TokenCounts(PROMPT), 0)
    assert np.array_equal(logits, ROWS["random"])
