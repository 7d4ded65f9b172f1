"""Refuses requests by their headers alone, on every path and before anything is read.

Owns three refusals. Headers may be too long, which ``connection`` sees only while they are still coming. A request may
be meant for another host; why that matters is in ``host_names``. And it may say in two ways how long it is: a proxy in
front may believe the one, while the server believes the other and takes the rest for a further request, from somebody
else.
Source: RFC 9112, section 6.3, and section 11.2 (request smuggling).
"""

from collections.abc import Sequence

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from cutaway.api.failure import HttpError
from cutaway.api.host_names import host_name
from cutaway.api.json_text import json_bytes
from cutaway.api.vendor import vendor_of
from cutaway.limits import MAX_HEAD_BYTES


class HeadCheck:
    """ASGI middleware: lets through only requests whose headers are in order.

    Args:
        app: what answers.
        hosts: names that it answers to, as ``allowed_hosts`` gives them.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None) -> None:
        self.app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        error = self._why_not(scope["headers"])
        if error is None:
            await self.app(scope, receive, send)
            return
        body = json_bytes(vendor_of(scope).error_reply(error, scope["state"]["request_id"]).body())
        response = Response(body, error.status, dict(error.headers), "application/json")
        await response(scope, receive, send)

    def _why_not(self, headers: Sequence[tuple[bytes, bytes]]) -> HttpError | None:
        if sum(len(name) + len(value) for name, value in headers) > MAX_HEAD_BYTES:
            return HttpError(431, "head_too_long", f"the headers are longer than the limit of {MAX_HEAD_BYTES:,} bytes")
        names = {name for name, _ in headers}
        hosts = [value for name, value in headers if name == b"host"]
        if {b"content-length", b"transfer-encoding"} <= names:
            text = "both content-length and transfer-encoding say how long the body is"
            return HttpError(400, "ambiguous_length", text, hint="send one of them", headers={"connection": "close"})
        # Without a Host there is no browser: they all send it, and HTTP/1.1 asks for it.
        for host in hosts:
            if self._hosts is not None and host_name(host.decode("latin-1")) not in self._hosts:
                text = f"this server does not answer to the name {host[:80].decode('latin-1')!r}"
                hint = "whoever runs it can add the name with --allowed-host"
                return HttpError(421, "unknown_host", text, hint=hint)
        return None
