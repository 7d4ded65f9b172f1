"""DRY against its definition: by looking everywhere, token by token or at once, with breakers and windows."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sampling_reference import normal_row, row, slow_dry, slow_stages

from cutaway.sampling.dry import Repetition, penalize_repetition, repeat_lengths
from cutaway.sampling.penalties import TokenCounts
from cutaway.sampling.sampler import choose
from cutaway.types import DryBreakers, SamplingParams

TOKENS = st.lists(st.integers(0, 3), min_size=1, max_size=30)
BREAKERS = st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=3).map(tuple), max_size=3)
SETTINGS = st.builds(
    SamplingParams,
    dry_multiplier=st.sampled_from([0.5, 2.0]),
    dry_base=st.sampled_from([1.0, 1.1, 1.75]),
    dry_allowed_length=st.integers(1, 4),
    dry_penalty_last_n=st.sampled_from([-1, 1, 2, 7, 12, 1000]),
)


def breakers_of(sequences: list[tuple[int, ...]]) -> DryBreakers:
    singles = frozenset(sequence[0] for sequence in sequences if len(sequence) == 1)
    longer = tuple((frozenset(sequence[:1]), sequence[1:]) for sequence in sequences if len(sequence) > 1)
    return DryBreakers(singles, longer)


def settings(last_n: int) -> SamplingParams:
    return SamplingParams(dry_multiplier=1.0, dry_allowed_length=1, dry_penalty_last_n=last_n)


# A breaker that is complete later, but begins earlier, than another; one that begins before the window.
@example([2, 3, 4, 1, 2, 3], 6, [(2,), (1, 2, 3)], settings(-1))
@example([0, 1, 1, 1, 1], 2, [(0, 1, 1)], settings(4))
@given(TOKENS, st.integers(1, 30), BREAKERS, SETTINGS)
def test_what_tokens_lose_is_what_the_definition_says_however_they_came(tokens, num_prompt, sequences, params):
    prompt, output = tokens[:num_prompt], tokens[num_prompt:]
    repetition = Repetition(prompt, breakers_of(sequences))
    for token_id in output:
        repetition.add(token_id)
    logits = normal_row(5, 3)
    lost = (logits.astype(np.float64) - penalize_repetition(logits, params, repetition)).tolist()
    losses = slow_dry(tokens, params, sequences)
    assert lost == pytest.approx([losses.get(token_id, 0) for token_id in range(5)], abs=1e-4, rel=1e-6)
    assert repetition.longest(params) == Repetition(tokens, breakers_of(sequences)).longest(params)


@given(TOKENS)
def test_lengths_are_those_of_looking_everywhere(tokens):
    last = len(tokens) - 1
    expected = [
        max(size for size in range(at + 2) if tokens[at + 1 - size : at + 1] == tokens[last + 1 - size :][:size])
        for at in range(last)
    ]
    assert repeat_lengths(tokens).tolist() == expected


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.0}, {"temperature": 0.7, "top_k": 3, "top_p": 0.9}])
def test_it_is_a_stage_after_the_penalties(settings):
    params = SamplingParams(dry_multiplier=1.0, presence_penalty=0.5, **settings)
    prompt, output = [1, 2, 3, 4], [1, 2, 3]
    repetition = Repetition([*prompt, *output], DryBreakers())
    logits = row([1.0, 2.0, 0.5, 3.0, 4.0])
    choice = choose(logits, params, TokenCounts(prompt, output), 7, num_top=5, num_candidates=9, repetition=repetition)
    expected = slow_stages(logits.tolist(), params, prompt, output)
    assert [stage.name for stage in choice.stages] == [stage.name for stage in expected]
    for stage, slow in zip(choice.stages, expected, strict=True):
        got = {candidate.token_id: math.exp(candidate.logprob) for candidate in stage.top}
        assert got == pytest.approx(slow.probabilities, rel=1e-6)
    assert choice.top == choose(logits, SamplingParams(), TokenCounts(), 7, num_top=5).top


def lost(tokens: list[int], token_id: int, **settings: float) -> float:
    params = SamplingParams(**{"dry_multiplier": 1.0, "dry_base": 2.0} | settings)
    penalized = penalize_repetition(row([0.0] * 10), params, Repetition(tokens, breakers_of([(9,), (7, 8)])))
    return -float(penalized[token_id])


def test_penalties_worked_out_by_hand():
    assert lost([1, 2, 3, 1, 2], 3) == 1  # as long as is allowed: the multiplier
    assert lost([1, 2, 3, 1, 2], 1) == 0
    assert lost([5, 1, 2, 3, 5, 1, 2], 3) == 2
    assert lost([4, 5, 1, 2, 3, 4, 5, 1, 2], 3, dry_multiplier=0.5) == 2
    assert lost([1, 2, 3, 1, 2], 3, dry_allowed_length=3) == 0
    assert lost([5, 1, 2, 3, 5, 1, 2], 3, dry_penalty_last_n=6) == 1  # the first 5 is not looked at
    assert lost([1, 2, 3, 1, 2], 3, dry_penalty_last_n=4) == 0
    assert lost([1, 2, 3, 9, 1, 2], 3) == 1  # a breaker before what repeats
    assert lost([5, 9, 1, 2, 3, 5, 9, 1, 2], 3) == 1  # does not reach across it
    assert lost([1, 2, 3, 1, 9, 2], 3) == 0
    assert lost([1, 2, 9, 1, 2], 9) == 0  # a breaker itself loses nothing
    assert lost([7, 8, 1, 2, 3, 7, 8, 1, 2], 3) == 1  # a breaker of two tokens
    assert lost([8, 7, 1, 2, 3, 8, 7, 1, 2], 3) == 4


def test_no_penalty_leaves_float32_or_lifts_a_ban():
    tokens = [1, 2] * 500
    params = SamplingParams(dry_multiplier=100.0, dry_base=100.0)
    penalized = penalize_repetition(row([0.0, 1.0, -math.inf]), params, Repetition(tokens, DryBreakers()))
    assert penalized[1] == np.finfo(np.float32).min
    assert penalized.tolist()[::2] == [0.0, -math.inf]


def test_a_long_prompt_of_one_token_is_no_more_work_than_another():
    repetition = Repetition([5] * 50_000, DryBreakers())
    for _ in range(20):
        repetition.add(5)
    params = SamplingParams(dry_multiplier=1.0, dry_base=1.0, dry_allowed_length=3)
    assert repetition.longest(params) == {5: 50_019}


def test_turned_off_it_is_no_stage():
    for settings in ({"dry_multiplier": 0.0}, {"dry_multiplier": 1.0, "dry_penalty_last_n": 0}):
        choice = choose(row([1.0, 2.0]), SamplingParams(**settings), TokenCounts(), 0, num_candidates=2)
        assert [stage.name for stage in choice.stages] == ["logits"]
