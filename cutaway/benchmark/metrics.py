"""From what a client saw of each request to figures, by the definitions of ``vllm bench serve``. Standard library only.

A *chunk* is a server-sent event that has ``choices``, even if its text is empty. TTFT runs from sending to the first
chunk, E2EL to the last one; ITL is the gap between two chunks, however many tokens they carry; TPOT is
(E2EL - TTFT) / (output tokens - 1). Requests that failed count nowhere but in ``num_failed``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import ceil, floor
from statistics import fmean, pstdev

GOODPUT_METRICS = ("ttft", "tpot", "e2el")


@dataclass(frozen=True, slots=True)
class RequestTiming:
    """One request that was answered. Times are seconds of one clock.

    Attributes:
        sent_s: when it was sent.
        chunks_s: when each chunk came, at least one.
        num_input_tokens, num_output_tokens: its prompt and its answer.
    """

    sent_s: float
    chunks_s: tuple[float, ...]
    num_input_tokens: int
    num_output_tokens: int

    @property
    def ttft_s(self) -> float:
        """Time to the first chunk."""
        return self.chunks_s[0] - self.sent_s

    @property
    def e2el_s(self) -> float:
        """Time to the last chunk."""
        return self.chunks_s[-1] - self.sent_s

    @property
    def itl_s(self) -> tuple[float, ...]:
        """Gaps between chunks."""
        return tuple(later - earlier for earlier, later in pairwise(self.chunks_s))

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first; ``None`` if there is none."""
        if self.num_output_tokens <= 1:
            return None
        return (self.e2el_s - self.ttft_s) / (self.num_output_tokens - 1)

    def meets(self, goodput: Mapping[str, float]) -> bool:
        """Whether it stays within all limits, in milliseconds by metric; a missing TPOT counts as 0."""
        values_s = {"ttft": self.ttft_s, "tpot": self.tpot_s or 0.0, "e2el": self.e2el_s}
        return all(values_s[metric] <= limit_ms / 1e3 for metric, limit_ms in goodput.items())


@dataclass(frozen=True, slots=True)
class Distribution:
    """Values at a glance.

    Attributes:
        mean, median, std: ``std`` is that of the values themselves, not an estimate from a sample.
        percentiles: value of each percentile that was asked for.
    """

    mean: float
    median: float
    std: float
    percentiles: Mapping[float, float]

    def named(self) -> dict[str, float]:
        """All values by name: ``mean``, ``median``, ``std``, ``p99``."""
        percentiles = {f"p{percent:g}": value for percent, value in self.percentiles.items()}
        return {"mean": self.mean, "median": self.median, "std": self.std, **percentiles}


@dataclass(frozen=True, slots=True)
class ServeFigures:
    """What a run against a server comes to. Rates are per second of ``duration_s``.

    Attributes:
        num_completed, num_failed: requests.
        duration_s: from the start of the load to the end of the last request.
        num_input_tokens, num_output_tokens: of completed requests.
        request_throughput, output_throughput, total_token_throughput: completed requests, their output tokens, and
            input and output tokens.
        request_goodput: requests that met all limits; ``None`` without limits.
        max_output_tokens_per_s: most chunks in a second; seconds are counted from the first request on.
        max_concurrent_requests: most completed requests under way at the same time.
        ttft_ms, tpot_ms, itl_ms, e2el_ms: ``None`` where no request has one.
    """

    num_completed: int
    num_failed: int
    duration_s: float
    num_input_tokens: int
    num_output_tokens: int
    request_throughput: float
    request_goodput: float | None
    output_throughput: float
    total_token_throughput: float
    max_output_tokens_per_s: int
    max_concurrent_requests: int
    ttft_ms: Distribution | None
    tpot_ms: Distribution | None
    itl_ms: Distribution | None
    e2el_ms: Distribution | None


def measure(
    timings: Sequence[RequestTiming],
    num_failed: int,
    duration_s: float,
    percentiles: Sequence[float],
    goodput: Mapping[str, float],
) -> ServeFigures:
    """The figures of a run.

    Args:
        timings: of the requests that were answered.
        num_failed: how many were not.
        duration_s: of the whole run, more than 0.
        percentiles: from 0 to 100.
        goodput: limits in milliseconds, by metric of ``GOODPUT_METRICS``.
    """
    num_input = sum(timing.num_input_tokens for timing in timings)
    num_output = sum(timing.num_output_tokens for timing in timings)
    num_good = sum(timing.meets(goodput) for timing in timings)
    tpots_s = [timing.tpot_s for timing in timings if timing.tpot_s is not None]
    return ServeFigures(
        num_completed=len(timings),
        num_failed=num_failed,
        duration_s=duration_s,
        num_input_tokens=num_input,
        num_output_tokens=num_output,
        request_throughput=len(timings) / duration_s,
        request_goodput=num_good / duration_s if goodput else None,
        output_throughput=num_output / duration_s,
        total_token_throughput=(num_input + num_output) / duration_s,
        max_output_tokens_per_s=max(chunks_per_second(timings), default=0),
        max_concurrent_requests=max((count for _, count in concurrency(timings)), default=0),
        ttft_ms=distribution_ms((timing.ttft_s for timing in timings), percentiles),
        tpot_ms=distribution_ms(tpots_s, percentiles),
        itl_ms=distribution_ms((gap_s for timing in timings for gap_s in timing.itl_s), percentiles),
        e2el_ms=distribution_ms((timing.e2el_s for timing in timings), percentiles),
    )


def distribution_ms(values_s: Iterable[float], percentiles: Sequence[float]) -> Distribution | None:
    """Seconds at a glance, in milliseconds; ``None`` if there are none."""
    values = sorted(1e3 * value for value in values_s)
    if not values:
        return None
    return Distribution(
        mean=fmean(values),
        median=percentile(values, 50),
        std=pstdev(values),
        percentiles={each: percentile(values, each) for each in percentiles},
    )


def percentile(ascending: Sequence[float], percent: float) -> float:
    """The value below which so many percent of the values lie, interpolated between neighbours as numpy does."""
    place = (len(ascending) - 1) * percent / 100
    low, high = ascending[floor(place)], ascending[ceil(place)]
    return low + (high - low) * (place - floor(place))


def chunks_per_second(timings: Sequence[RequestTiming]) -> list[int]:
    """Chunks that came in each second, counted from when the first request was sent."""
    if not timings:
        return []
    begin_s = min(timing.sent_s for timing in timings)
    seconds = [int(chunk_s - begin_s) for timing in timings for chunk_s in timing.chunks_s]
    counts = [0] * (max(seconds) + 1)
    for second in seconds:
        counts[second] += 1
    return counts


def concurrency(timings: Sequence[RequestTiming]) -> list[tuple[float, int]]:
    """Requests under way from each moment on, at which one was sent or had its last chunk.

    At one moment ends come before starts: a request that follows another does not overlap with it.
    """
    ends = [(timing.chunks_s[-1], -1) for timing in timings]
    changes = sorted([*ends, *((timing.sent_s, 1) for timing in timings)])
    counts = accumulate(change for _, change in changes)
    return [(moment_s, count) for (moment_s, _), count in zip(changes, counts, strict=True)]
