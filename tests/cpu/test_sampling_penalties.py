"""Penalties against numbers worked out by hand."""

import numpy as np
import pytest

from cutaway.errors import GenerationError
from cutaway.sampling.penalties import TokenCounts, has_penalties, penalize
from cutaway.types import SamplingParams

LOGITS = np.array([4.0, -2.0, 0.0, 3.0, 1.0, -1.0], dtype=np.float32)
# The prompt holds 0, 1 and 5; the output is 3, 3, 1.
COUNTS = TokenCounts([0, 1, 1, 5], [3, 3, 1])


def penalized(**settings: float) -> list[float]:
    return penalize(LOGITS, SamplingParams(**settings), COUNTS).tolist()


def test_repetition_divides_positive_and_multiplies_negative_logits_of_prompt_and_output():
    assert penalized(repetition_penalty=2.0) == [2.0, -4.0, 0.0, 1.5, 1.0, -2.0]


def test_repetition_below_one_favours_what_was_seen():
    assert penalized(repetition_penalty=0.5) == [8.0, -1.0, 0.0, 6.0, 1.0, -0.5]


def test_presence_is_subtracted_once_from_output_tokens_only():
    assert penalized(presence_penalty=0.5) == [4.0, -2.5, 0.0, 2.5, 1.0, -1.0]


def test_frequency_is_subtracted_for_each_occurrence_in_the_output():
    assert penalized(frequency_penalty=0.5) == [4.0, -2.5, 0.0, 2.0, 1.0, -1.0]


def test_negative_presence_and_frequency_favour_what_was_put_out():
    assert penalized(presence_penalty=-1.0, frequency_penalty=-0.5) == [4.0, -0.5, 0.0, 5.0, 1.0, -1.0]


def test_repetition_comes_before_frequency_and_presence():
    # token 3: 3 / 2 - 2 * 0.25 - 1 = 0; token 1: -2 * 2 - 0.25 - 1 = -5.25
    settings = {"repetition_penalty": 2.0, "frequency_penalty": 0.25, "presence_penalty": 1.0}
    assert penalized(**settings) == [2.0, -5.25, 0.0, 0.0, 1.0, -2.0]


def test_the_original_logits_stay_as_they_are():
    before = LOGITS.copy()
    penalized(repetition_penalty=3.0, presence_penalty=2.0)
    assert np.array_equal(LOGITS, before)


def test_nothing_seen_means_nothing_changed():
    params = SamplingParams(repetition_penalty=2.0, presence_penalty=1.0)
    assert np.array_equal(penalize(LOGITS, params, TokenCounts()), LOGITS)


def test_a_banned_token_stays_banned():
    logits = np.array([-np.inf, 1.0], dtype=np.float32)
    params = SamplingParams(repetition_penalty=0.1, presence_penalty=-2.0)
    assert penalize(logits, params, TokenCounts([0], [0])).tolist() == [-np.inf, 1.0]


@pytest.mark.parametrize(("logit", "penalty"), [(3e38, 0.01), (-3e38, 10.0)])
def test_a_penalty_that_leaves_float32_fails_the_request(logit, penalty):
    logits = np.array([logit, 1.0], dtype=np.float32)
    with pytest.raises(GenerationError, match=r"repetition_penalty .* drives 1 logits out of the range"):
        penalize(logits, SamplingParams(repetition_penalty=penalty), TokenCounts([0]))


@pytest.mark.parametrize("name", ["repetition_penalty", "presence_penalty", "frequency_penalty"])
def test_each_penalty_counts_as_one_only_when_it_is_set(name):
    assert has_penalties(SamplingParams(**{name: 0.5}))
    assert not has_penalties(SamplingParams(temperature=0.5, top_k=3, top_p=0.5, min_p=0.1))


def test_counts_hold_each_token_once_however_many_are_added():
    rng = np.random.default_rng(1)
    prompt = rng.integers(0, 500, 300).tolist()
    output = rng.integers(0, 1_000, 3_000).tolist()
    counts = TokenCounts(prompt)
    for token_id in output:
        counts.add(token_id)
    expected = {token_id: output.count(token_id) for token_id in [*prompt, *output]}
    assert counts.token_ids.tolist() == list(expected)
    assert counts.num_outputs.tolist() == list(expected.values())


def test_counts_taken_up_again_equal_counts_kept_up():
    kept = TokenCounts([3, 1])
    for token_id in (1, 9, 9):
        kept.add(token_id)
    again = TokenCounts([3, 1], [1, 9, 9])
    assert again.token_ids.tolist() == kept.token_ids.tolist() == [3, 1, 9]
    assert again.num_outputs.tolist() == kept.num_outputs.tolist() == [0, 1, 2]
