"""A connection of uvicorn's that does not wait for ever, and says what is wrong in the shape of other errors.

uvicorn waits without a limit for the head of a request, the line with the path and the headers. A client that opens
connections and says nothing, or a byte now and then, would keep a file open for each ("slowloris"). Here a head has to
be whole in time. Between two requests the time is that of keep-alive, until something comes.
"""

import asyncio
import sys
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from cutaway.api.json_text import json_bytes
from cutaway.api.openai_error import INVALID, ErrorReply
from cutaway.limits import HEAD_SECONDS, MAX_HEAD_BYTES

MAX_SHOWN_CHARS = 100


class Connection(H11Protocol):
    """One connection.

    Attributes:
        head_seconds: from the connection, or the first byte of a further request, to the end of the headers.
    """

    head_seconds: ClassVar[float] = HEAD_SECONDS
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """There is a client."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """It says something."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._forget()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP; uvicorn calls it while it handles what h11 raised, which knows more."""
        error = sys.exception()
        if isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == 431:
            self._refuse(431, "head_too_long", f"the headers are longer than the limit of {MAX_HEAD_BYTES:,} bytes")
        else:
            self._refuse(400, "invalid_http", f"this is no HTTP request: {str(error)[:MAX_SHOWN_CHARS]}")

    def _watch(self) -> None:
        """Let the time run while a request is to come, and stop it when one is there."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._forget()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.head_seconds, self._give_up)

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        if self.transport.is_closing():
            return
        has_begun = bool(self.conn.trailing_data[0])
        if has_begun and self.conn.our_state is h11.IDLE:
            text = f"the headers were not there after the limit of {self.head_seconds:g} seconds"
            self._refuse(408, "head_timeout", text)
        else:  # it said nothing, or goes on with a body that nobody wanted
            self.transport.close()

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Answer what is not even a request, unless an answer to another one is under way, and close."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()
            return
        body = json_bytes(ErrorReply(status, INVALID, code, message).body())
        headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        for event in (h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
