"""Biases and bans against their definitions: on random rows, with ties, with everything banned."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sampling_reference import ALL, row, slow_stages

from cutaway.errors import GenerationError
from cutaway.sampling.bias import add_bias, ban
from cutaway.sampling.penalties import TokenCounts
from cutaway.sampling.sampler import choose
from cutaway.types import SamplingParams

LOGITS = st.lists(st.floats(-30, 30, width=32) | st.sampled_from([0.0, -math.inf]), min_size=1, max_size=12)
BIASES = st.dictionaries(st.integers(0, 11), st.floats(-100, 100), max_size=6)
BANNED = st.sets(st.integers(0, 11), max_size=6)


def test_a_bias_is_added_and_the_rest_stays_as_it_is():
    logits = row([1.0, -math.inf, 2.0, 3.0])
    assert add_bias(logits, [(0, 2.5), (1, 100.0), (3, -100.0)]).tolist() == [3.5, -math.inf, 2.0, -97.0]
    assert ban(logits, [2, 1]).tolist() == [1.0, -math.inf, -math.inf, 3.0]
    assert logits.tolist() == [1.0, -math.inf, 2.0, 3.0]


@given(LOGITS, BIASES, BANNED, st.sampled_from([0.0, 0.7, 1.0]))
def test_stages_are_what_their_definitions_say(values, biases, banned, temperature):
    size = len(values)
    pairs = tuple(sorted((token_id, bias) for token_id, bias in biases.items() if token_id < size))
    banned_ids = tuple(sorted(token_id for token_id in banned if token_id < size))
    assume(any(value > -math.inf and token_id not in banned_ids for token_id, value in enumerate(values)))
    params = SamplingParams(temperature=temperature, logit_bias=pairs, repetition_penalty=1.5, seed=3)
    choice = choose(row(values), params, TokenCounts([0]), 7, num_top=3, num_candidates=ALL, banned_ids=banned_ids)
    expected = slow_stages(row(values).tolist(), params, [0], [], banned_ids)
    assert [stage.name for stage in choice.stages] == [stage.name for stage in expected]
    for stage, slow in zip(choice.stages, expected, strict=True):
        assert stage.num_kept == len(slow.probabilities)
        assert stage.mass_removed == pytest.approx(slow.mass_removed, abs=1e-9)
        got = {candidate.token_id: math.exp(candidate.logprob) for candidate in stage.top}
        assert got == pytest.approx(slow.probabilities, rel=1e-6, abs=1e-12)
    assert choice.token_id not in banned_ids
    untouched = choose(row(values), SamplingParams(), TokenCounts(), 7, num_top=3)
    assert choice.top == untouched.top, "what is reported is what the model itself said"


def test_the_logprob_of_a_token_that_a_bias_chose_is_the_models_own():
    values = [0.0, 4.0, 1.0]
    choice = choose(row(values), SamplingParams(temperature=0, logit_bias=((0, 100.0),)), TokenCounts(), 0)
    total = math.fsum(math.exp(value) for value in values)
    assert (choice.token_id, choice.rank) == (0, 3)
    assert choice.logprob == pytest.approx(-math.log(total))


def test_a_ban_leaves_ties_to_the_lower_id():
    choice = choose(row([2.0, 2.0, 2.0]), SamplingParams(temperature=0), TokenCounts(), 0, banned_ids=[0])
    assert choice.token_id == 1


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_of_which_everything_is_banned_fails_and_says_by_what(temperature):
    params = SamplingParams(temperature=temperature)
    with pytest.raises(GenerationError, match="no token can be chosen: min_tokens bans all that the model allows"):
        choose(row([1.0, -math.inf, 2.0]), params, TokenCounts(), 0, banned_ids=[0, 2])


def test_the_smallest_bias_bans_only_in_effect():
    params = SamplingParams(logit_bias=tuple((token_id, -100.0) for token_id in range(3)), seed=1)
    plain = SamplingParams(seed=1)
    for position in range(20):
        biased = choose(row([1.0, 2.0, 0.5]), params, TokenCounts(), position)
        assert biased.token_id == choose(row([1.0, 2.0, 0.5]), plain, TokenCounts(), position).token_id


def test_a_bias_cannot_leave_the_range_of_float32():
    largest = float(np.finfo(np.float32).max)
    assert add_bias(row([largest, -largest]), [(0, 100.0), (1, -100.0)]).tolist() == [largest, -largest]
