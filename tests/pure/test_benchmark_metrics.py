"""Figures of a run against a server, checked against values worked out by hand."""

import pytest

from cutaway.benchmark.metrics import (
    RequestTiming,
    chunks_per_second,
    concurrency,
    distribution_ms,
    measure,
    percentile,
)

# Sent at 10 s; chunks after 0.5, 0.7, 1.1 s; 5 output tokens in those 3 chunks.
FIRST = RequestTiming(10.0, (10.5, 10.7, 11.1), 20, 5)
# Sent when the first has ended; one chunk with the only token.
SECOND = RequestTiming(11.1, (11.35,), 30, 1)
# Sent while the first is under way, and longer than both.
THIRD = RequestTiming(10.25, (11.25, 13.25), 40, 3)


def test_latencies_of_a_request_are_those_of_its_chunks():
    assert FIRST.ttft_s == pytest.approx(0.5)
    assert FIRST.e2el_s == pytest.approx(1.1)
    assert FIRST.itl_s == pytest.approx((0.2, 0.4))  # a gap for each chunk, though the chunks carry five tokens


def test_time_per_token_leaves_the_first_token_out():
    assert FIRST.tpot_s == pytest.approx(0.6 / 4)
    assert THIRD.tpot_s == pytest.approx(2.0 / 2)


@pytest.mark.parametrize("num_output_tokens", [0, 1])
def test_an_answer_of_one_token_has_no_time_per_token(num_output_tokens: int):
    timing = RequestTiming(0.0, (1.0, 3.0), 1, num_output_tokens)
    assert timing.tpot_s is None
    assert timing.meets({"tpot": 0.001})  # counts as 0


def test_figures_are_per_second_of_the_whole_run():
    figures = measure([FIRST, SECOND, THIRD], 2, 4.0, (50, 99), {})
    assert (figures.num_completed, figures.num_failed) == (3, 2)
    assert (figures.num_input_tokens, figures.num_output_tokens) == (90, 9)
    assert figures.request_throughput == pytest.approx(0.75)
    assert figures.output_throughput == pytest.approx(2.25)
    assert figures.total_token_throughput == pytest.approx(99 / 4)
    assert figures.request_goodput is None


def test_each_latency_is_summarized_over_all_requests():
    figures = measure([FIRST, SECOND, THIRD], 0, 4.0, (50, 90), {})
    assert figures.ttft_ms is not None
    assert figures.ttft_ms.mean == pytest.approx((500 + 250 + 1000) / 3)
    assert figures.ttft_ms.median == pytest.approx(500)
    # Of 250, 500, 1000: nine tenths of the way from the first to the last is 0.8 between the second and the last.
    assert figures.ttft_ms.percentiles == pytest.approx({50: 500, 90: 900})
    assert figures.tpot_ms is not None
    assert figures.tpot_ms.mean == pytest.approx((150 + 1000) / 2)  # the answer of one token has none
    assert figures.itl_ms is not None
    assert figures.itl_ms.median == pytest.approx(400)  # of 200, 400, 2000
    assert figures.e2el_ms is not None
    assert figures.e2el_ms.mean == pytest.approx((1100 + 250 + 3000) / 3)


@pytest.mark.parametrize(
    ("goodput", "num_good"),
    [
        ({"ttft": 600}, 2),
        ({"ttft": 400}, 1),
        (
            {"ttft": 600, "tpot": 100},
            1,
        ),  # the first is too slow after its first token, the second has no time per token
        ({"e2el": 3000}, 3),
        ({"ttft": 1000, "tpot": 1000, "e2el": 2999}, 2),
        ({"ttft": 1}, 0),
    ],
)
def test_goodput_counts_requests_that_meet_every_limit(goodput: dict[str, float], num_good: int):
    figures = measure([FIRST, SECOND, THIRD], 0, 4.0, (99,), goodput)
    assert figures.request_goodput == pytest.approx(num_good / 4)


def test_a_limit_that_is_just_reached_is_met():
    assert RequestTiming(0.0, (0.5,), 1, 1).meets({"ttft": 500, "e2el": 500})


def test_chunks_are_counted_in_seconds_from_the_first_request():
    # After 10.0: 0.5, 0.7, 1.1, 1.35, 1.25, 3.25 seconds.
    assert chunks_per_second([FIRST, SECOND, THIRD]) == [2, 3, 0, 1]
    assert measure([FIRST, SECOND, THIRD], 0, 4.0, (99,), {}).max_output_tokens_per_s == 3


def test_a_request_does_not_overlap_with_the_one_that_it_follows():
    assert max(count for _, count in concurrency([FIRST, SECOND])) == 1
    assert max(count for _, count in concurrency([FIRST, SECOND, THIRD])) == 2
    assert concurrency([FIRST]) == [(10.0, 1), (11.1, 0)]


def test_without_answers_there_are_no_latencies():
    figures = measure([], 3, 1.0, (99,), {"ttft": 5})
    assert (figures.num_completed, figures.num_failed, figures.request_goodput) == (0, 3, 0.0)
    assert figures.ttft_ms is figures.tpot_ms is figures.itl_ms is figures.e2el_ms is None
    assert (figures.max_output_tokens_per_s, figures.max_concurrent_requests) == (0, 0)


def test_answers_of_one_chunk_have_no_gaps():
    assert measure([SECOND], 0, 1.0, (99,), {}).itl_ms is None


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [([7], 99, 7), ([1, 2], 50, 1.5), ([1, 2, 3, 4], 25, 1.75), ([1, 2, 3, 4], 0, 1), ([1, 2, 3, 4], 100, 4)],
)
def test_percentiles_are_interpolated(values: list[float], percent: float, expected: float):
    assert percentile(values, percent) == pytest.approx(expected)


def test_a_distribution_names_its_values():
    values = distribution_ms([0.003, 0.001], (50, 99.9))
    assert values is not None
    assert values.named() == pytest.approx({"mean": 2, "median": 2, "std": 1, "p50": 2, "p99.9": 2.998})
