"""Work for a client that may leave."""

import asyncio
from collections.abc import Coroutine

from starlette.types import Receive


async def until_left(receive: Receive, work: Coroutine[object, object, None]) -> None:
    """Do some work, and give it up when the client leaves.

    Args:
        receive: what the client says; its whole body has been read.
        work: is cancelled when the client leaves, and raises what it likes.
    """
    doing = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait((doing, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        doing.cancel()
        leaving.cancel()
        await asyncio.gather(doing, leaving, return_exceptions=True)
    if not doing.cancelled():
        doing.result()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
