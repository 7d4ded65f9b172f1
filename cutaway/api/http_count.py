"""Counts the requests over HTTP."""

from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Whatever else clients ask for is one route here, so that they cannot make new ones.
NO_ROUTE = "other"
# The client left before it was answered; the name that nginx gave to it.
LEFT = 499


class HttpCount:
    """ASGI middleware: counts each request by the pattern of its route and the status of its answer.

    Args:
        app: what answers.
        count: takes both.
    """

    def __init__(self, app: ASGIApp, count: Callable[[str, int], None]) -> None:
        self.app = app
        self._count = count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status = LEFT

        async def send_and_look(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, send_and_look)
        finally:
            self._count(getattr(scope.get("route"), "path", NO_ROUTE), status)
