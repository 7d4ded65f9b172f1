"""An answer, on its way from an engine to a client.

Owns when something is sent: nothing before the engine has something to show for the request, so that whatever goes
wrong until then has a status of its own; only where a vendor has pings, and the wait is long, they come first. Refuses
to know fields and shapes. Invariants: when the client leaves, the request is aborted; a stream ends with its vendor's
end or with an error.
"""

import logging
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cutaway.api.batch import Deltas
from cutaway.api.event_stream import EventStream, pinging
from cutaway.api.failure import check_finish
from cutaway.api.json_text import Json, json_bytes
from cutaway.api.leaving import until_left
from cutaway.api.vendor import StreamedReply, Vendor, WholeReply
from cutaway.errors import CutawayError
from cutaway.types import Delta

LOG = logging.getLogger(__name__)


class WholeResponse(Response):
    """Sends an answer as one JSON object.

    Args:
        deltas: what the engine says, once it is asked; leaving it aborts what runs.
        reply: makes the object.
    """

    def __init__(self, deltas: Deltas, reply: WholeReply) -> None:
        super().__init__()
        self._deltas = deltas
        self._reply = reply

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer.

        Raises:
            CutawayError: there is none, and nothing was sent.
        """
        await until_left(receive, self._answer(scope, receive, send))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        notices: list[str] = []
        async with aclosing(self._deltas) as deltas:
            async for delta in deltas:
                check_finish(delta)
                notices += delta.notices
                self._reply.take(delta)
        body = json_bytes(self._reply.complete(notices))
        await Response(body, media_type="application/json")(scope, receive, send)


class StreamedResponse(Response):
    """Sends an answer as events.

    Args:
        deltas: what the engine says, once it is asked; leaving it aborts what runs.
        reply: makes the values of the events.
        vendor: whose client it is.
        request_id: as the client knows it.
    """

    def __init__(self, deltas: Deltas, reply: StreamedReply, vendor: Vendor, request_id: str) -> None:
        super().__init__()
        self._deltas = deltas
        self._reply = reply
        self._vendor = vendor
        self._request_id = request_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer.

        Raises:
            CutawayError: there is none, and nothing was sent.
        """
        await until_left(receive, self._answer(EventStream(send)))

    async def _answer(self, stream: EventStream) -> None:
        try:
            async with pinging(stream, self._vendor.ping, self._vendor.ping_seconds):
                await self._send_deltas(stream)
            end = self._vendor.end
        except Exception as error:
            if not stream.has_begun:
                raise
            # Every stream has an end, and its client learns of it.
            if not isinstance(error, CutawayError):
                LOG.exception("request %s met a bug", self._request_id)
            end = self._vendor.event(self._vendor.error_reply(error, self._request_id).body())
        await stream.end(end)

    async def _send_deltas(self, stream: EventStream) -> None:
        async with aclosing(self._deltas) as deltas:
            first, notices = await _first(deltas)
            await stream.send(self._events([*self._reply.begin(first, notices), *self._reply.take(first)]))
            async for delta in deltas:
                check_finish(delta)
                await stream.send(self._events(self._reply.take(delta)))
            await stream.send(self._events(self._reply.end()))

    def _events(self, values: list[Json]) -> bytes:
        return b"".join(map(self._vendor.event, values))


async def _first(deltas: Deltas) -> tuple[Delta, list[str]]:
    """The first delta that shows something, and all notices until then.

    Raises:
        CutawayError: the request cannot be run, or ended without an answer.
    """
    notices: list[str] = []
    async for delta in deltas:
        check_finish(delta)
        notices += delta.notices
        if delta.text or delta.choices or delta.finish is not None:
            return delta, notices
    raise AssertionError("the last delta has a finish")
