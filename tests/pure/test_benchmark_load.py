"""When requests are sent, and what they ask."""

from itertools import pairwise
from pathlib import Path
from statistics import fmean, pstdev

import pytest

from cutaway.benchmark.load import Load
from cutaway.benchmark.prompts import Prompt, random_prompts, read_dataset
from cutaway.errors import InvalidValue


def gaps(load: Load) -> list[float]:
    return [later - earlier for earlier, later in pairwise((0.0, *load.arrivals_s()))]


def test_without_a_rate_everything_is_sent_at_once():
    assert Load(3).arrivals_s() == (0.0, 0.0, 0.0)


def test_a_seed_makes_the_schedule_repeatable():
    assert Load(20, 5.0, seed=1).arrivals_s() == Load(20, 5.0, seed=1).arrivals_s()
    assert Load(20, 5.0, seed=1).arrivals_s() != Load(20, 5.0, seed=2).arrivals_s()


@pytest.mark.parametrize("burstiness", [0.001, 0.2, 1.0, 50.0])
def test_the_last_request_is_due_when_the_rate_says(burstiness: float):
    arrivals = Load(40, 8.0, burstiness).arrivals_s()
    assert arrivals[-1] == pytest.approx(5.0)
    assert list(arrivals) == sorted(arrivals)
    assert arrivals[0] >= 0


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_spread_as_a_gamma_distribution_of_that_shape_does(burstiness: float):
    found = gaps(Load(20_000, 10.0, burstiness))
    assert fmean(found) == pytest.approx(0.1)
    # The standard deviation of a gamma distribution is its mean by the root of its shape; the seed is fixed.
    assert pstdev(found) == pytest.approx(0.1 / burstiness**0.5, rel=0.05)


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_prompts": 0},
        {"request_rate": 0.0},
        {"request_rate": float("inf")},
        {"burstiness": 0.0},
        {"burstiness": float("nan")},
        {"max_concurrency": 0},
        {"seed": 2**64},
    ],
    ids=str,
)
def test_a_load_outside_its_limits_is_refused(wrong: dict[str, float]):
    with pytest.raises(InvalidValue, match=next(iter(wrong))):
        Load(**({"num_prompts": 1} | wrong))  # type: ignore[arg-type]


def test_random_prompts_have_the_words_asked_for_and_follow_from_the_seed():
    prompts = random_prompts(5, 12, 7, seed=3)
    assert [(prompt.num_words, prompt.max_tokens) for prompt in prompts] == [(12, 7)] * 5
    assert len({prompt.text for prompt in prompts}) == 5
    assert prompts == random_prompts(5, 12, 7, seed=3)
    assert prompts != random_prompts(5, 12, 7, seed=4)


def test_a_dataset_is_read_line_by_line(tmp_path: Path):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "하나"}\n\n{"prompt": "two", "max_tokens": 3}\n', encoding="utf-8")
    assert read_dataset(path, 9) == [Prompt("하나", 9), Prompt("two", 3)]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "has no prompts"),
        (b'{"prompt": "a"}\nnonsense', "line 2"),
        (b'{"prompt": ""}', "line 1"),
        (b'["a"]', "line 1"),
        (b'{"prompt": 5}', "line 1"),
        (b'{"prompt": "a", "max_token": 5}', "max_token, which nothing here knows"),
        (b'{"prompt": "a", "max_tokens": 0}', "max_tokens: 0 is outside"),
        (b'{"prompt": "a", "max_tokens": "5"}', "max_tokens: '5'"),
        (b'{"prompt": "\xff"}', "cannot be read"),
        (b"[" * 100_000, "line 1"),
    ],
)
def test_a_dataset_of_another_form_is_refused_by_line(tmp_path: Path, content: bytes, complaint: str):
    path = tmp_path / "prompts.jsonl"
    path.write_bytes(content)
    with pytest.raises(InvalidValue, match=complaint):
        read_dataset(path, 9)


def test_a_dataset_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(InvalidValue, match="cannot be read: No such file"):
        read_dataset(tmp_path / "missing.jsonl", 9)
