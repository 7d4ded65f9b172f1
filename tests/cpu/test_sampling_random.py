"""Random numbers: the published vectors, and streams that do not resemble each other."""

import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from cutaway.sampling.random import Purpose, philox4x32, uniform

# Counter, key and output from kat_vectors of the Random123 distribution, philox4x32 with 10 rounds.
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]
NUM_SAMPLES = 20_000


def words(text: str) -> tuple[int, ...]:
    return tuple(int(word, 16) for word in text.split())


def stream(seed: int, purpose: Purpose = Purpose.TOKEN, count: int = NUM_SAMPLES) -> np.ndarray:
    return np.array([uniform(seed, position, purpose) for position in range(count)])


@pytest.mark.parametrize(("counter", "key", "output"), KNOWN_ANSWERS)
def test_philox_gives_the_published_answers(counter, key, output):
    assert philox4x32(words(counter), words(key)) == words(output)


def test_a_uniform_number_is_the_first_two_words_cut_to_53_bits():
    low, high = words(KNOWN_ANSWERS[0][2])[:2]
    assert uniform(0, 0, Purpose.TOKEN) == ((high << 32 | low) >> 11) / 2**53


def test_the_largest_possible_number_is_below_one(monkeypatch):
    monkeypatch.setattr("cutaway.sampling.random.philox4x32", lambda counter, key: (0xFFFFFFFF,) * 4)
    assert uniform(0, 0, Purpose.TOKEN) == 1 - 2**-53


def test_numbers_stay_the_same_in_a_fresh_process():
    code = "from cutaway.sampling.random import *; print([uniform(7, p, Purpose.TOKEN).hex() for p in range(5)])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == str([uniform(7, p, Purpose.TOKEN).hex() for p in range(5)])


@pytest.mark.parametrize("seed", [0, 1, 2**32, 2**63 - 1, -1, -(2**63)])
def test_a_stream_is_uniform_and_does_not_remember(seed):
    numbers = stream(seed)
    counts = np.histogram(numbers, bins=100, range=(0, 1))[0]
    assert stats.chisquare(counts).pvalue > 1e-4
    pairs = np.histogram2d(numbers[:-1], numbers[1:], bins=10, range=[[0, 1], [0, 1]])[0]
    assert stats.chisquare(pairs.ravel()).pvalue > 1e-4


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (stream(0), stream(1)),
        (stream(0), stream(2**32)),
        (stream(5), stream(-5)),
        (stream(3), stream(3, Purpose.ACCEPT)),
        (stream(0)[1:], stream(1)[:-1]),
    ],
    ids=["seeds", "high halves of seeds", "signs", "purposes", "shifted seeds"],
)
def test_streams_of_different_seeds_and_purposes_are_independent(one, other):
    assert abs(np.corrcoef(one, other)[0, 1]) < 4 / np.sqrt(one.size)
    pairs = np.histogram2d(one, other, bins=10, range=[[0, 1], [0, 1]])[0]
    assert stats.chisquare(pairs.ravel()).pvalue > 1e-4


def test_no_two_positions_seeds_or_purposes_share_a_number():
    numbers = [
        uniform(seed, position, purpose)
        for seed in (0, 1, -1, 2**32, 2**62)
        for position in (0, 1, 2, 2**31, 2**32, 2**33 + 1)
        for purpose in Purpose
    ]
    assert len(set(numbers)) == len(numbers)
