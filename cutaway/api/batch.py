"""Several requests as one stream of deltas.

Owns the order: every request has become a prompt before the first delta is given, so that one that cannot be run keeps
all from being answered. Refuses to know what is asked. Invariant: leaving the iteration aborts all of them.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from itertools import accumulate

from cutaway.engine.client import EngineClient
from cutaway.types import Delta, GenerationRequest

Deltas = AsyncGenerator[Delta, None]


async def submit_all(engine: EngineClient, requests: Sequence[GenerationRequest]) -> Deltas:
    """Run requests side by side; the ``index`` of a delta counts through the copies of all of them, in order.

    Raises:
        CutawayError: as ``EngineClient.submit``, for the first request that cannot be run.
    """
    async with AsyncExitStack() as stack:
        streams: list[Deltas] = []
        firsts: list[Delta] = []
        for request in requests:  # one after another, so that others get their turn at the tokenizer
            streams.append(await stack.enter_async_context(aclosing(engine.submit(request))))
            firsts.append(await anext(streams[-1]))
        *starts, num_open = accumulate((request.n for request in requests), initial=0)
        for place, (start, delta) in enumerate(zip(starts, firsts, strict=True)):
            num_open -= delta.finish is not None
            notices = delta.notices if len(requests) == 1 else _name_prompt(place, delta.notices)
            yield replace(delta, index=start + delta.index, notices=notices)
        async with aclosing(_merged(streams, starts)) as deltas:
            while num_open:
                delta = await anext(deltas)
                num_open -= delta.finish is not None
                yield delta


def _name_prompt(place: int, notices: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"prompt[{place}]: {notice}" for notice in notices)


async def _merged(streams: Sequence[Deltas], starts: Sequence[int]) -> Deltas:
    """The deltas of streams as they come; it does not end by itself."""
    deltas: asyncio.Queue[Delta | Exception] = asyncio.Queue()

    async def pump(stream: Deltas, start: int) -> None:
        try:
            async for delta in stream:
                deltas.put_nowait(replace(delta, index=start + delta.index))
        except Exception as error:  # it belongs to whoever reads the deltas
            deltas.put_nowait(error)

    tasks = [asyncio.ensure_future(pump(*each)) for each in zip(streams, starts, strict=True)]
    try:
        while True:
            delta = await deltas.get()
            if isinstance(delta, Exception):
                raise delta
            yield delta
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
