"""Sending a load to a server, and counting what came back."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import httpx2

from cutaway.benchmark.client import Answered, Failed, Reply, Target, ask, open_client
from cutaway.benchmark.load import Load
from cutaway.benchmark.metrics import RequestTiming
from cutaway.benchmark.prompts import Prompt
from cutaway.errors import CutawayError


@dataclass(frozen=True, slots=True)
class ServeRun:
    """What came of a load.

    Attributes:
        replies: one for each prompt, in order.
        duration_s: from the start to the end of the last request.
    """

    replies: tuple[Reply, ...]
    duration_s: float

    @property
    def answers(self) -> list[Answered]:
        """The replies that are answers."""
        return [reply for reply in self.replies if isinstance(reply, Answered)]

    @property
    def failures(self) -> list[str]:
        """Why the others are none."""
        return [reply.reason for reply in self.replies if isinstance(reply, Failed)]


async def run_load(
    target: Target,
    prompts: Sequence[Prompt],
    load: Load,
    warmup: Sequence[Prompt],
    done: Callable[[int, int], None],
) -> ServeRun:
    """Send warm-up requests, one after another, and then the load.

    Args:
        target: the server.
        prompts: ``load.num_prompts`` of them.
        load: when each is sent.
        warmup: prompts that count nowhere; others, lest the server know the first prompts from them.
        done: hears how many requests have ended, of how many.

    Raises:
        CutawayError: a warm-up request failed.
    """
    async with open_client(target) as client:
        for prompt in warmup:
            reply = await ask(client, target, prompt)
            if isinstance(reply, Failed):
                raise CutawayError(
                    f"{target.address} failed at the warm-up: {reply.reason}",
                    hint="is the server there, and does it know the model? --warmup 0 goes on all the same",
                )
        return await _Sender(client, target, load, done).send(prompts)


class _Sender:
    """Sends prompts when they are due, no more at the same time than allowed."""

    def __init__(
        self, client: httpx2.AsyncClient, target: Target, load: Load, done: Callable[[int, int], None]
    ) -> None:
        self._client = client
        self._target = target
        self._load = load
        self._done = done
        self._num_done = 0
        self._places = None if load.max_concurrency is None else asyncio.Semaphore(load.max_concurrency)

    async def send(self, prompts: Sequence[Prompt]) -> ServeRun:
        self._done(0, len(prompts))
        begin_s = time.perf_counter()
        tasks = []
        async with asyncio.TaskGroup() as group:
            for prompt, due_s in zip(prompts, self._load.arrivals_s(), strict=True):
                wait_s = begin_s + due_s - time.perf_counter()
                if wait_s > 0:
                    await asyncio.sleep(wait_s)
                tasks.append(group.create_task(self._ask(prompt, len(prompts))))
        return ServeRun(tuple(task.result() for task in tasks), time.perf_counter() - begin_s)

    async def _ask(self, prompt: Prompt, num_prompts: int) -> Reply:
        async with AsyncExitStack() as stack:
            if self._places is not None:
                await stack.enter_async_context(self._places)
            reply = await ask(self._client, self._target, prompt)
        self._num_done += 1
        self._done(self._num_done, num_prompts)
        return reply


def to_timing(answered: Answered, count: Callable[[str], int] | None) -> RequestTiming:
    """What counts of an answer.

    Args:
        answered: the answer.
        count: tokens of a text, for servers that do not say; without it a chunk with text and a word of a prompt stand
            for a token.
    """
    num_input, num_output = answered.num_input_tokens, answered.num_output_tokens
    if num_input is None:
        num_input = answered.prompt.num_words if count is None else count(answered.prompt.text)
    if num_output is None:
        num_output = answered.num_text_chunks if count is None else count(answered.text)
    return RequestTiming(answered.sent_s, answered.chunks_s, num_input, num_output)
