"""Bodies of requests: how long they may take to come, and how much there may be of all together.

Owns both limits, for every route; that of a single body is where it is read (``body``). Invariant: what is counted is
what has come, never what a client says will come, so that nobody can keep others out with words.
"""

import asyncio
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cutaway.api.failure import BUSY_RETRY_S, HttpError
from cutaway.limits import BODY_SECONDS, MAX_BODIES_BYTES


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Limits of the bodies of requests.

    Attributes:
        seconds: in which a whole body has to be there.
        num_bytes: of all requests under way; a body is counted until its request has been answered, because what it
            says is kept as long.
    """

    seconds: float = BODY_SECONDS
    num_bytes: int = MAX_BODIES_BYTES


BODY_LIMITS = BodyLimits()


class BodyGuard:
    """ASGI middleware: lets ``receive`` raise ``HttpError`` when a body is too slow or there is too much of them.

    Args:
        app: what answers, and what turns the error into one.
        limits: of the bodies.
    """

    def __init__(self, app: ASGIApp, limits: BodyLimits) -> None:
        self.app = app
        self._limits = limits
        self._num_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        body = _Body(receive, self._limits.seconds)

        async def receive_some() -> Message:
            message = await body.receive()
            num_new = body.num_bytes - body.num_counted
            if self._num_bytes + num_new > self._limits.num_bytes:
                raise _too_much(self._limits.num_bytes)
            self._num_bytes += num_new
            body.num_counted += num_new
            return message

        try:
            await self.app(scope, receive_some, send)
        finally:
            self._num_bytes -= body.num_counted


class _Body:
    """One body on its way.

    Attributes:
        num_bytes: that have come.
        num_counted: of those, among the bytes of all bodies.
    """

    def __init__(self, receive: Receive, seconds: float) -> None:
        self.num_bytes = self.num_counted = 0
        self._receive = receive
        self._seconds = seconds
        self._deadline = asyncio.get_running_loop().time() + seconds
        self._is_whole = False

    async def receive(self) -> Message:
        """The next message; once the body is whole, there is all the time in the world for it."""
        if self._is_whole:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise _too_slow(self._seconds) from None
        self.num_bytes += len(message.get("body", b""))
        self._is_whole = not message.get("more_body", False)
        return message


def _too_slow(seconds: float) -> HttpError:
    text = f"the body was not there after the limit of {seconds:g} seconds"
    # Its rest would keep the connection as long as the client likes.
    return HttpError(408, "body_timeout", text, headers={"connection": "close"})


def _too_much(num_bytes: int) -> HttpError:
    text = f"the bodies of all requests under way have more than the limit of {num_bytes:,} bytes"
    return HttpError(503, "overloaded", text, hint="send it again later", headers={"retry-after": str(BUSY_RETRY_S)})
