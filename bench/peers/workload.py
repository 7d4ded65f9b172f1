"""What every engine is asked to do, and how its times become rates. Standard library only: peers import it as well."""

import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

# Ids from here on up to VOCAB_SIZE are ordinary tokens in the vocabularies of all models that are measured.
FIRST_TOKEN = 1_000
VOCAB_SIZE = 40_000


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests that begin together, with prompts of one length.

    Attributes:
        num_prompt: tokens of each prompt.
        num_generated: tokens of each answer; 1 asks for nothing but the prompt to be read.
        num_requests: how many.
    """

    num_prompt: int
    num_generated: int
    num_requests: int = 1

    @property
    def name(self) -> str:
        """What is measured: ``prefill`` or ``decode``."""
        return "prefill" if self.num_generated == 1 else "decode"


@dataclass(frozen=True, slots=True)
class Phases:
    """Seconds until each request had its first token; seconds and tokens of the steps in which all went on."""

    prefill_s: float
    decode_s: float
    num_decoded: int

    def rate(self, workload: Workload) -> float:
        """Tokens a second of the phase that the workload is about."""
        if workload.name == "prefill":
            return workload.num_prompt * workload.num_requests / self.prefill_s
        return self.num_decoded / self.decode_s


FIRST_ANSWER = Workload(num_prompt=32, num_generated=1)
MEMORY_LOAD = Workload(num_prompt=128, num_generated=64, num_requests=32)


def make_prompts(workload: Workload, seed: int) -> list[list[int]]:
    """Random tokens; the same for the same seed, and no two prompts alike."""
    dice = random.Random(seed)
    return [
        [dice.randrange(FIRST_TOKEN, VOCAB_SIZE) for _ in range(workload.num_prompt)]
        for _ in range(workload.num_requests)
    ]


def time_answers(step: Callable[[], Iterable[str]], names: Sequence[str], num_generated: int) -> Phases:
    """Step until every request has its tokens.

    Args:
        step: does one step of the engine; returns the name of a request once for each token that it got.
        names: of the requests.
        num_generated: tokens that each will get.
    """
    counts = dict.fromkeys(names, 0)
    prefill_s, decode_s, num_decoded = 0.0, 0.0, 0
    while min(counts.values()) < num_generated:
        all_started, none_ended = min(counts.values()) > 0, max(counts.values()) < num_generated
        begin = time.perf_counter()
        got = list(step())
        seconds = time.perf_counter() - begin
        for name in got:
            counts[name] += 1
        if not all_started:
            prefill_s += seconds
        elif none_ended:
            decode_s += seconds
            num_decoded += len(got)
    return Phases(prefill_s, decode_s, num_decoded)
