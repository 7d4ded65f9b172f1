"""When requests are sent: a schedule that follows from its numbers and a seed alone. Standard library only."""

import random
from dataclasses import dataclass
from itertools import accumulate

from cutaway.limits import check_number


@dataclass(frozen=True, slots=True)
class Load:
    """How requests arrive.

    Attributes:
        num_prompts: requests to send.
        request_rate: how many a second on average; ``None`` sends all at once.
        burstiness: shape of the gamma distribution of the gaps: 1 is a Poisson process, less comes in bursts, more is
            more even.
        max_concurrency: requests under way at the same time; more wait until one has ended. ``None`` for any number.
        seed: of the gaps.

    Raises:
        InvalidValue: a value is outside its limits.
    """

    num_prompts: int
    request_rate: float | None = None
    burstiness: float = 1.0
    max_concurrency: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is not None:
                check_number(name, value)

    def arrivals_s(self) -> tuple[float, ...]:
        """When each request is due, in seconds from the start.

        As in ``vllm bench serve``, the gaps are drawn and then stretched so that the last request is due at exactly
        ``num_prompts / request_rate``: runs of different seeds offer the same load.
        """
        if self.request_rate is None:
            return (0.0,) * self.num_prompts
        dice = random.Random(self.seed)  # noqa: S311 - a load is no secret
        scale_s = 1 / (self.request_rate * self.burstiness)
        drawn = list(accumulate(dice.gammavariate(self.burstiness, scale_s) for _ in range(self.num_prompts)))
        if not drawn[-1]:  # so bursty that all gaps are nothing
            return (0.0,) * self.num_prompts
        stretch = self.num_prompts / self.request_rate / drawn[-1]
        return tuple(due_s * stretch for due_s in drawn)
