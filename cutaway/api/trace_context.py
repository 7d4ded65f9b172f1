"""Which trace of a distributed system a request belongs to.

A caller says it in ``traceparent``. The answer says in ``traceresponse`` under which id this server was part of it;
``x-request-id`` beside it is what the server's log knows. It is that header because ``traceparent`` is one of requests
only, while the drafts of the standard give ``traceresponse`` to responses, and OpenTelemetry sends it. It goes to
nobody who sent no valid ``traceparent``: ids of traces are for those who take part in them. This server keeps no traces
of its own, so its flags never say that it was sampled.
Source: https://www.w3.org/TR/trace-context-2/ (3.2 traceparent, 5.3 privacy), and for the response the editor's draft
https://w3c.github.io/trace-context/ (traceresponse).
"""

import re
import secrets
from collections.abc import Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

PARENT, RESPONSE = b"traceparent", b"traceresponse"
# Later versions may have more behind another dash.
FORMAT = re.compile(
    rb"(?P<version>[0-9a-f]{2})-(?P<trace_id>[0-9a-f]{32})-(?P<parent_id>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})"
    rb"(?P<more>-.*)?",
    re.DOTALL,
)
FORBIDDEN_VERSION = b"ff"
# The trace id is random in part, which stays true whoever passes it on.
RANDOM = 0b10


def answer_to(parents: Sequence[bytes], span_id: str) -> str | None:
    """What a server says to a caller that names its trace.

    Args:
        parents: every ``traceparent`` of the request.
        span_id: of this server's part in the trace, 16 digits.

    Returns:
        A ``traceresponse``; ``None`` if there is no single valid ``traceparent``.
    """
    found = FORMAT.fullmatch(parents[0]) if len(parents) == 1 else None
    if found is None or found["version"] == FORBIDDEN_VERSION or (found["version"] == b"00" and found["more"]):
        return None
    if not (found["trace_id"].strip(b"0") and found["parent_id"].strip(b"0")):
        return None
    return f"00-{found['trace_id'].decode()}-{span_id}-{int(found['flags'], 16) & RANDOM:02x}"


def new_span_id() -> str:
    """A random id, which is never all zeros."""
    return f"{secrets.randbelow(2**64 - 1) + 1:016x}"


class TraceContext:
    """ASGI middleware: answers to a caller that names its trace.

    Args:
        app: what answers.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        response = answer_to([value for name, value in scope.get("headers", ()) if name == PARENT], new_span_id())
        if response is None:
            await self.app(scope, receive, send)
            return

        async def send_with_trace(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), (RESPONSE, response.encode())]}
            await send(message)

        await self.app(scope, receive, send_with_trace)
