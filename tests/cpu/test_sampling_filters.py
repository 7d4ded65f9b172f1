"""Top-nσ, typical-p and XTC against their definitions: on random rows, with ties, alone and together."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling_reference import ALL, normal_row, pick, row, slow_stages

from cutaway.sampling.random import Purpose, uniform
from cutaway.types import SamplingParams, TokenChoice

# Halves, so that there are ties, but no two different logits that are equal but for rounding.
LOGITS = st.lists(st.integers(-12, 12).map(lambda half: half / 2) | st.just(-math.inf), min_size=1, max_size=14).filter(
    lambda values: max(values) > -math.inf
)
SETTINGS = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.61, 1.0, 1.73]),
        "top_n_sigma": st.sampled_from([0.0, 0.513, 1.237]),
        "min_p": st.sampled_from([0.0, 0.0313]),
        "top_k": st.sampled_from([0, 5, 1000]),
        "typical_p": st.sampled_from([1.0, 0.9371, 0.4137]),
        "top_p": st.sampled_from([1.0, 0.8713]),
        "xtc_probability": st.sampled_from([0.0, 0.5, 1.0]),
        "xtc_threshold": st.sampled_from([0.0, 0.0717, 0.2371, 0.5]),
    }
)


@given(LOGITS, SETTINGS, st.integers(0, 1000))
def test_stages_are_what_their_definitions_say(values, settings, position):
    choice = pick(row(values), position, **settings, seed=5)
    expected = slow_stages(values, SamplingParams(**settings, seed=5), position=position)
    assert [stage.name for stage in choice.stages] == [stage.name for stage in expected]
    for stage, slow in zip(choice.stages, expected, strict=True):
        assert stage.num_kept == len(slow.probabilities), stage.name
        assert stage.mass_removed == pytest.approx(slow.mass_removed, abs=1e-9), stage.name
        got = {candidate.token_id: math.exp(candidate.logprob) for candidate in stage.top}
        assert list(got) == list(slow.probabilities), stage.name
        assert got == pytest.approx(slow.probabilities, rel=1e-6)
    final = expected[-1].probabilities
    assert choice.draw.probability == pytest.approx(final[choice.token_id], rel=1e-6)
    assert choice.draw.low <= choice.draw.uniform < choice.draw.high


def last_stage(choice: TokenChoice) -> tuple[str, list[int]]:
    stage = choice.stages[-1]
    return stage.name, [candidate.token_id for candidate in stage.top]


def test_typical_drops_a_token_that_is_too_likely_for_its_entropy():
    # -log p of the first is 0.22, of each other 4.4; the entropy is 1.05: the first is nearer, so it stays ...
    values = [math.log(0.8), *[math.log(0.2 / 16)] * 16]
    assert last_stage(pick(row(values), typical_p=0.5)) == ("typical_p", [0])
    # ... but here it is farther from it than 30 others (1.2, 3.8 and 3.0), which are kept by rising id.
    values = [math.log(0.3), *[math.log(0.7 / 30)] * 30]
    assert last_stage(pick(row(values), typical_p=0.05)) == ("typical_p", [1, 2, 3])


def test_xtc_drops_all_that_reach_the_threshold_but_the_least_likely():
    values = [math.log(p) for p in (0.1, 0.4, 0.05, 0.25, 0.2)]
    assert last_stage(pick(row(values), xtc_probability=1, xtc_threshold=0.15)) == ("xtc", [4, 0, 2])
    assert last_stage(pick(row(values), xtc_probability=1, xtc_threshold=0.3)) == ("xtc", [1, 3, 4, 0, 2])
    assert last_stage(pick(row(values), xtc_probability=1, xtc_threshold=0.5)) == ("xtc", [1, 3, 4, 0, 2])
    assert last_stage(pick(row(values), xtc_probability=1, xtc_threshold=0)) == ("xtc", [2])
    assert last_stage(pick(row([1.0] * 4), xtc_probability=1, xtc_threshold=0.25)) == ("xtc", [3])


def test_xtc_applies_as_often_as_it_is_asked_to_by_a_number_of_its_own():
    values, num_positions = row([math.log(p) for p in (0.6, 0.4)]), 2_000
    for probability in (0.1, 0.7):
        choices = [pick(values, at, xtc_probability=probability, seed=3) for at in range(num_positions)]
        applied = [choice.stages[-1].num_kept == 1 for choice in choices]
        assert abs(sum(applied) / num_positions - probability) < 0.04
        assert applied == [uniform(3, at, Purpose.XTC) < probability for at in range(num_positions)]
        assert [choice.draw.uniform for choice in choices] == [
            uniform(3, at, Purpose.TOKEN) for at in range(num_positions)
        ]


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
def test_top_n_sigma_keeps_the_same_tokens_at_every_temperature(temperature):
    kept = last_stage(pick(normal_row(200, 4), top_n_sigma=1.5))[1]
    assert 1 < len(kept) < 200
    assert last_stage(pick(normal_row(200, 4), top_n_sigma=1.5, temperature=temperature))[1] == kept


def test_filters_that_drop_others_than_the_least_likely_work_on_a_whole_vocabulary():
    logits = normal_row(50_000, 7)
    for settings in (
        {"typical_p": 0.9},
        {"typical_p": 0.01},
        {"typical_p": 0.3, "top_k": 9_000},
        {"xtc_probability": 1, "xtc_threshold": 1e-4},
        {"top_n_sigma": 3.0},
    ):
        choice = pick(logits, 11, **settings)
        assert 0 < choice.stages[-1].num_kept < 50_000
        assert math.fsum(math.exp(c.logprob) for c in choice.stages[-1].top) == pytest.approx(1, abs=1e-9)
        assert len(choice.stages[-1].top) == min(choice.stages[-1].num_kept, ALL)


def test_at_temperature_zero_no_filter_has_an_effect():
    settings = {"xtc_probability": 1.0, "xtc_threshold": 0.0, "typical_p": 0.1, "top_n_sigma": 0.1}
    assert pick(normal_row(50, 1), temperature=0, **settings) == pick(normal_row(50, 1), temperature=0)
