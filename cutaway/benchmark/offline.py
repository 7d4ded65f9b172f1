"""An engine measured in this process: its real loop, scheduler and kernels, on prompts of random tokens.

A round has two parts. First all prompts are sent, each for one token: that is *prefill*, with nothing beside it. Then
the same prompts are sent again, each for a whole answer; the prefix cache has them now, so all answers begin together.
*Decode* is the steps after the last of them has begun and before the first has ended: each continues every answer.
Nothing of a round is in the cache when the round begins.
"""

import itertools
import queue
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from cutaway.benchmark.rounds import Round
from cutaway.benchmark.workload import Workload
from cutaway.engine.messages import Add, Report, Stop
from cutaway.engine.prepare import Prepared
from cutaway.engine.worker import Listener, Worker
from cutaway.errors import CutawayError, EngineStopped, GenerationError
from cutaway.glass.receipt import PromptFacts, RequestFacts
from cutaway.glass.recorder import Asked
from cutaway.scheduler.plan import NewRequest
from cutaway.types import Finish, FinishReason, SamplingParams, TokenPrompt

GREEDY = SamplingParams(temperature=0)


def run_rounds(worker: Worker, workload: Workload, done: Callable[[int, int], None]) -> list[Round]:
    """Start a worker and measure; the caller stops it, whatever happens.

    Args:
        worker: of the engine.
        workload: what to compute.
        done: hears how many rounds are done, of how many.

    Raises:
        InvalidValue: the requests do not fit into context or cache.
        GenerationError: a request failed.
        EngineStopped: the engine was lost.
        CutawayError: there was no decode step.
    """
    driver = _Driver(worker)
    workload.check_fits(worker.model)
    rounds = []
    for index in range(workload.num_rounds):
        done(index, workload.num_rounds)
        rounds.append(_run_round(driver, workload, index))
    done(workload.num_rounds, workload.num_rounds)
    return rounds[workload.warmup :]


def stop(worker: Worker) -> None:
    """End the engine, and wait for its end."""
    worker.send(Stop.CLOSE)
    worker.join()


@dataclass(frozen=True, slots=True)
class _Step:
    """When a step was reported, in seconds, and how many tokens each request got from it."""

    at_s: float
    num_tokens: Mapping[int, int]


class _Driver:
    """Sends requests to a worker and notes what it reports, and when."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._ids = itertools.count()
        self._reports: queue.SimpleQueue[tuple[float, Report | str]] = queue.SimpleQueue()
        worker.start(Listener(self._put, self._put))

    @property
    def vocab_size(self) -> int:
        """Tokens of the model."""
        return self._worker.model.vocab_size

    def _put(self, report: Report | str) -> None:
        """Take a report, or why there will be no more. Called by the engine's thread, which it must not hold up."""
        self._reports.put((time.perf_counter(), report))

    def answer(self, prompts: Sequence[tuple[int, ...]], num_tokens: int, salt: str) -> list[_Step]:
        """Run requests to their end, each for so many tokens; the steps that gave tokens.

        Raises:
            GenerationError: one failed.
            EngineStopped: the engine was lost.
        """
        for prompt in prompts:
            stream_id = next(self._ids)
            self._worker.send(Add(stream_id, _prepare(f"bench_{stream_id}", prompt, num_tokens, salt)))
        steps = []
        num_open = len(prompts)
        while num_open:
            at_s, report = self._reports.get()
            if isinstance(report, str):
                raise EngineStopped(report)
            counts: Counter[int] = Counter()
            for event in report.events:
                if event.delta.finish is not None:
                    _check(event.delta.finish)
                    num_open -= 1
                if event.delta.choices:
                    counts[event.stream_id] += len(event.delta.choices)
            if counts:
                steps.append(_Step(at_s, counts))
        return steps


def _run_round(driver: _Driver, workload: Workload, index: int) -> Round:
    prompts = [workload.prompt(index, number, driver.vocab_size) for number in range(workload.batch)]
    salt = f"round {index}"
    sent_s = time.perf_counter()
    prefill = driver.answer(prompts, 1, salt)
    ttft_s = tuple(step.at_s - sent_s for step in prefill for _ in step.num_tokens)
    steps = driver.answer(prompts, workload.output_len, salt)
    begin, end = _decode_steps(steps, workload)
    decode = steps[begin:end]
    return Round(
        prefill_s=max(ttft_s),
        ttft_s=ttft_s,
        step_s=tuple(later.at_s - earlier.at_s for earlier, later in pairwise(decode)),
        contexts=_contexts(steps[:end], workload.input_len)[begin + 1 :],
    )


def _decode_steps(steps: Sequence[_Step], workload: Workload) -> tuple[int, int]:
    """From the step in which the last answer began to the last one that continued all, exclusive.

    Raises:
        CutawayError: no step continued all.
    """
    begun: set[int] = set()
    begin = end = 0
    for place, step in enumerate(steps):
        if not begun.issuperset(step.num_tokens):
            begin = place
        begun.update(step.num_tokens)
        if len(step.num_tokens) == workload.batch:
            end = place + 1
    if end - begin < 2:
        raise CutawayError(
            f"no step continued all {workload.batch:,} answers: the first ended before the last had begun",
            hint="choose a longer --output-len, or --prefix-cache, with which prompts are not read twice",
        )
    return begin, end


def _contexts(steps: Sequence[_Step], input_len: int) -> tuple[tuple[int, ...], ...]:
    """How many positions each row of each step saw, its own included."""
    num_generated: Counter[int] = Counter()
    contexts = []
    for step in steps:
        contexts.append(tuple(input_len + num_generated[stream_id] for stream_id in step.num_tokens))
        num_generated.update(step.num_tokens)
    return tuple(contexts)


def _prepare(request_id: str, prompt: tuple[int, ...], num_tokens: int, salt: str) -> Prepared:
    """A request that no end token ends."""
    new = NewRequest(request_id, prompt, num_tokens, end_ids=(), sampling=GREEDY, salt=salt)
    facts = PromptFacts("tokens", "", (), prompt, ((0, 0),) * len(prompt), num_tokens, ())
    now_ns = time.perf_counter_ns()
    asked = Asked(RequestFacts(TokenPrompt(prompt), GREEDY, num_tokens, ()), facts, now_ns, now_ns, now_ns)
    return Prepared((new,), (), asked, ())


def _check(finish: Finish) -> None:
    if finish.reason is not FinishReason.LENGTH:
        raise GenerationError(f"a request did not come to its end, but {finish.reason}: {finish.cause}")
