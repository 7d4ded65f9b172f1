"""The answer to a request for a chat completion, on its way from an engine to a client.

Owns when something is sent: nothing before the engine has something to show for the request, so that whatever goes
wrong until then has a status of its own. Refuses to know fields and shapes. Invariants: when the client leaves, the
request is aborted; a stream ends with ``[DONE]`` or with an error.
"""

import logging
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from functools import partial

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cutaway.api.json_text import json_bytes
from cutaway.api.leaving import until_left
from cutaway.api.openai import ChatCall
from cutaway.api.openai_error import Unfinished, error_reply
from cutaway.api.openai_reply import FINISH_REASONS, Head, StreamedAnswer, WholeAnswer
from cutaway.api.sse import CONTENT_TYPE, DONE, event
from cutaway.api.timings import tell_timings
from cutaway.engine.client import EngineClient
from cutaway.errors import CutawayError
from cutaway.types import Delta

LOG = logging.getLogger(__name__)


class ChatAnswer(Response):
    """Runs a request and sends its answer.

    Args:
        engine: runs it.
        call: what was asked.
        head: what stands in every object of the answer.
        request_id: as the client knows it.
    """

    def __init__(self, engine: EngineClient, call: ChatCall, head: Head, request_id: str) -> None:
        super().__init__()
        self._engine = engine
        self._call = call
        self._head = head
        self._request_id = request_id
        self._timings = partial(tell_timings, engine, call.request, request_id) if call.timings else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer.

        Raises:
            CutawayError: there is none, and nothing was sent.
        """
        await until_left(receive, self._stream(send) if self._call.stream else self._whole(send))

    async def _whole(self, send: Send) -> None:
        answer = WholeAnswer(self._call, self._engine.spelling, self._timings)
        notices: list[str] = []
        async with aclosing(self._engine.submit(self._call.request)) as deltas:
            async for delta in deltas:
                _check(delta)
                notices += delta.notices
                answer.take(delta)
        body = json_bytes(answer.complete(self._head, notices))
        await _start(send, "application/json", (b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.body", "body": body})

    async def _stream(self, send: Send) -> None:
        answer = StreamedAnswer(self._call, self._engine.spelling, self._head, self._timings)
        async with aclosing(self._engine.submit(self._call.request)) as deltas:
            first, notices = await _first(deltas)
            await _start(send, CONTENT_TYPE, (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"))
            try:
                await _send_events(send, [*answer.begin(notices), *answer.take(first)])
                async for delta in deltas:
                    _check(delta)
                    await _send_events(send, answer.take(delta))
                await _send_events(send, answer.end())
                end = DONE
            except Exception as error:  # every stream has an end, and its client learns of it
                if not isinstance(error, CutawayError):
                    LOG.exception("request %s met a bug", self._request_id)
                end = event(error_reply(error, self._request_id).body())
        await send({"type": "http.response.body", "body": end})


async def _first(deltas: AsyncGenerator[Delta, None]) -> tuple[Delta, list[str]]:
    """The first delta that shows something, and all notices until then.

    Raises:
        CutawayError: the request cannot be run, or ended without an answer.
    """
    notices: list[str] = []
    async for delta in deltas:
        _check(delta)
        notices += delta.notices
        if delta.text or delta.choices or delta.finish is not None:
            return delta, notices
    raise AssertionError("the last delta has a finish")


def _check(delta: Delta) -> None:
    """Raises ``Unfinished`` if a copy of the request ended without an answer."""
    if delta.finish is not None and delta.finish.reason not in FINISH_REASONS:
        raise Unfinished(delta.finish)


async def _start(send: Send, content_type: str, *headers: tuple[bytes, bytes]) -> None:
    start = [(b"content-type", content_type.encode()), *headers]
    await send({"type": "http.response.start", "status": 200, "headers": start})


async def _send_events(send: Send, values: Iterable[object]) -> None:
    data = b"".join(map(event, values))
    if data:
        await send({"type": "http.response.body", "body": data, "more_body": True})
