"""The stream of events that a response is.

Owns the order of what is sent: the head before the first event, one event after the other, whoever sends them. Refuses
to know what events say.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import Send

from cutaway.api.sse import CONTENT_TYPE

HEADERS = [
    (b"content-type", CONTENT_TYPE.encode()),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class EventStream:
    """A response that begins with its first event.

    Args:
        send: takes the messages of ASGI.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._lock = asyncio.Lock()  # a client that reads slowly can make each message wait
        self.has_begun = False  # the client has been told that there is an answer
        self.last_s = asyncio.get_running_loop().time()  # when something was sent, or the stream was made

    async def send(self, data: bytes) -> None:
        """Send whole events; nothing if there are none."""
        if data:
            async with self._lock:
                await self._put(data, more=True)

    async def end(self, data: bytes) -> None:
        """Send the last events, if there are some, and end the response."""
        async with self._lock:
            await self._put(data, more=False)

    async def _put(self, data: bytes, *, more: bool) -> None:
        if not self.has_begun:
            self.has_begun = True
            await self._send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        await self._send({"type": "http.response.body", "body": data, "more_body": more})
        self.last_s = asyncio.get_running_loop().time()


@asynccontextmanager
async def pinging(stream: EventStream, ping: bytes, seconds: float) -> AsyncIterator[None]:
    """Send a ping whenever a stream has been silent for a time.

    Args:
        stream: gets the pings.
        ping: an event; none is sent if it is empty.
        seconds: how long silence may last.
    """
    task = asyncio.ensure_future(_ping(stream, ping, seconds)) if ping else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _ping(stream: EventStream, ping: bytes, seconds: float) -> None:
    while True:
        silent_s = asyncio.get_running_loop().time() - stream.last_s
        if silent_s >= seconds:
            await stream.send(ping)
        else:
            await asyncio.sleep(seconds - silent_s)
