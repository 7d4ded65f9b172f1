"""From what rounds of ``offline`` showed to figures. Standard library only."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from cutaway.benchmark.metrics import Distribution, distribution_ms
from cutaway.benchmark.work import Ceiling, ModelWork

PERCENTILES = (50.0, 90.0, 99.0)


@dataclass(frozen=True, slots=True)
class Round:
    """What one round showed.

    Attributes:
        prefill_s: from sending the prompts to the last first token.
        ttft_s: time to first token of each request while that happened.
        step_s: durations of the decode steps, which are the gaps between tokens of every answer.
        contexts: of each decode step, how many positions each row saw, its own included.
    """

    prefill_s: float
    ttft_s: tuple[float, ...]
    step_s: tuple[float, ...]
    contexts: tuple[tuple[int, ...], ...]

    @property
    def decode_s(self) -> float:
        """Seconds of all decode steps."""
        return sum(self.step_s)

    @property
    def num_decoded(self) -> int:
        """Tokens of all decode steps."""
        return sum(map(len, self.contexts))


@dataclass(frozen=True, slots=True)
class Spread:
    """The same quantity of each round."""

    median: float
    min: float
    max: float


@dataclass(frozen=True, slots=True)
class OfflineFigures:
    """What the rounds come to. Shares are of the machine's ceiling: 1 is all of it.

    Attributes:
        prefill_tokens_per_second: prompt tokens a second, while nothing but prompts is computed.
        prefill_gmac_per_second, prefill_arithmetic_share: of the median round.
        decode_tokens_per_second: of all answers together, while all are under way.
        decode_read_gb_per_second, decode_bandwidth_share: weights and cache read, of the median round.
        decode_gmac_per_second, decode_arithmetic_share: of the median round.
        ttft_ms, itl_ms: over all requests of all rounds.
    """

    prefill_tokens_per_second: Spread
    prefill_gmac_per_second: float
    prefill_arithmetic_share: float
    decode_tokens_per_second: Spread
    decode_read_gb_per_second: float
    decode_bandwidth_share: float
    decode_gmac_per_second: float
    decode_arithmetic_share: float
    ttft_ms: Distribution
    itl_ms: Distribution


def summarize(rounds: Sequence[Round], input_len: int, work: ModelWork, ceiling: Ceiling) -> OfflineFigures:
    """The figures of at least one round."""
    prefill_macs = work.prefill_macs(input_len)
    prefill_gmac = median(len(each.ttft_s) * prefill_macs / each.prefill_s for each in rounds) / 1e9
    read_gb = median(sum(map(work.decode_bytes, each.contexts)) / each.decode_s for each in rounds) / 1e9
    decode_gmac = median(sum(map(work.decode_macs, each.contexts)) / each.decode_s for each in rounds) / 1e9
    # Every answer has the same gap after the same step, so that one stands for all.
    ttft_ms = distribution_ms((ttft for each in rounds for ttft in each.ttft_s), PERCENTILES)
    itl_ms = distribution_ms((step for each in rounds for step in each.step_s), PERCENTILES)
    assert ttft_ms is not None, "a round has requests"
    assert itl_ms is not None, "a round has decode steps"
    return OfflineFigures(
        prefill_tokens_per_second=_spread([len(each.ttft_s) * input_len / each.prefill_s for each in rounds]),
        prefill_gmac_per_second=prefill_gmac,
        prefill_arithmetic_share=prefill_gmac / ceiling.gmac_per_second,
        decode_tokens_per_second=_spread([each.num_decoded / each.decode_s for each in rounds]),
        decode_read_gb_per_second=read_gb,
        decode_bandwidth_share=read_gb / ceiling.read_gb_per_second,
        decode_gmac_per_second=decode_gmac,
        decode_arithmetic_share=decode_gmac / ceiling.gmac_per_second,
        ttft_ms=ttft_ms,
        itl_ms=itl_ms,
    )


def _spread(values: Sequence[float]) -> Spread:
    return Spread(median(values), min(values), max(values))
