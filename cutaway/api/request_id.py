"""The id of a request: the client's, if it is one, or a new one.

Every response tells it in ``x-request-id``, and for Anthropic's clients also in ``request-id``.
"""

import logging
import re
import secrets

from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOG = logging.getLogger(__name__)
HEADER, ANTHROPIC_HEADER = b"x-request-id", b"request-id"
# The client's id goes into a header and into the log; it is never a key of anything.
VALID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")


class RequestIds:
    """ASGI middleware: puts the id into ``scope["state"]["request_id"]``, every response, and what is logged of a bug.

    Args:
        app: what answers.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = _choose(scope)
        scope.setdefault("state", {})["request_id"] = request_id

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                told = [(name, request_id.encode()) for name in (HEADER, ANTHROPIC_HEADER)]
                message = {**message, "headers": [*message.get("headers", ()), *told]}
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        except Exception:  # the client was told that the log has it
            LOG.exception("request %s met a bug", request_id)


def _choose(scope: Scope) -> str:
    given = [value for name, value in scope["headers"] if name == HEADER]
    if len(given) == 1 and VALID.fullmatch(given[0]):
        chosen: bytes = given[0]
        return chosen.decode()
    return f"req_{secrets.token_hex(12)}"
