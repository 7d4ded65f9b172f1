"""Refuses requests that were meant for another host; why, is in ``host_names``."""

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from cutaway.api.host_names import host_name
from cutaway.api.json_text import json_bytes
from cutaway.api.openai_error import HttpError, error_reply


class HostCheck:
    """ASGI middleware: refuses requests that name another host.

    Args:
        app: what answers.
        names: as ``allowed_hosts`` gives them.
    """

    def __init__(self, app: ASGIApp, names: frozenset[str] | None) -> None:
        self.app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        # Without a Host there is no browser: they all send it, and HTTP/1.1 asks for it.
        given = [value.decode("latin-1") for name, value in scope.get("headers", ()) if name == b"host"]
        if self._names is None or all(host_name(each) in self._names for each in given):
            await self.app(scope, receive, send)
            return
        error = HttpError(
            421,
            "unknown_host",
            f"this server does not answer to the name {given[0][:80]!r}",
            hint="whoever runs it can add the name with --allowed-host",
        )
        body = json_bytes(error_reply(error, "").body())
        await Response(body, error.status, media_type="application/json")(scope, receive, send)
