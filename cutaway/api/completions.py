"""The answer to a request for completions, on its way from an engine to a client.

Owns when something is sent, as ``chat`` does: nothing before every prompt is one, and the engine has something to show
for one of them. Refuses to know fields and shapes. Invariants: when the client leaves, all of its prompts are aborted;
a stream ends with ``[DONE]`` or with an error.
"""

import logging
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cutaway.api.batch import submit_all
from cutaway.api.completion_call import CompletionCall
from cutaway.api.completion_reply import StreamedCompletion, WholeCompletion
from cutaway.api.json_text import json_bytes
from cutaway.api.leaving import until_left
from cutaway.api.openai_error import Unfinished, error_reply
from cutaway.api.openai_reply import FINISH_REASONS, Head
from cutaway.api.sse import CONTENT_TYPE, DONE, event
from cutaway.engine.client import EngineClient
from cutaway.errors import CutawayError
from cutaway.types import Delta, TextPrompt, TokenPrompt

LOG = logging.getLogger(__name__)
STREAM_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}


class CompletionAnswer(Response):
    """Runs the requests of a call and sends their answers.

    Args:
        engine: runs them.
        call: what was asked.
        head: what stands in every object of the answer.
        request_id: as the client knows it.
    """

    def __init__(self, engine: EngineClient, call: CompletionCall, head: Head, request_id: str) -> None:
        super().__init__()
        self._engine = engine
        self._call = call
        self._head = head
        self._request_id = request_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answers.

        Raises:
            CutawayError: there are none, and nothing was sent.
        """
        work = self._stream(send) if self._call.stream else self._whole(scope, receive, send)
        await until_left(receive, work)

    async def _whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = WholeCompletion(self._call, self._engine.spelling, self._head, await self._echoes())
        notices: list[str] = []
        async with aclosing(submit_all(self._engine, self._call.requests)) as deltas:
            async for delta in deltas:
                _check(delta)
                notices += delta.notices
                answer.take(delta)
        body = json_bytes(answer.complete(notices))
        await Response(body, media_type="application/json")(scope, receive, send)

    async def _stream(self, send: Send) -> None:
        answer = StreamedCompletion(self._call, self._engine.spelling, self._head, await self._echoes())
        async with aclosing(submit_all(self._engine, self._call.requests)) as deltas:
            first, notices = await _first(deltas)
            begun = [*answer.begin(first, notices), *answer.take(first)]
            head = Response(media_type=CONTENT_TYPE, headers=STREAM_HEADERS)
            del head.headers["content-length"]
            await send({"type": "http.response.start", "status": 200, "headers": head.raw_headers})
            try:
                await _send_events(send, begun)
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

    async def _echoes(self) -> Sequence[str]:
        """The texts of the prompts, if answers begin with them."""
        texts = []
        for request in self._call.requests if self._call.echo else ():
            match request.prompt:
                case TextPrompt(text):
                    texts.append(text)
                case TokenPrompt():
                    texts.append(await self._engine.detokenize(request.prompt))
        return texts


async def _first(deltas: AsyncGenerator[Delta, None]) -> tuple[Delta, list[str]]:
    """The first delta that shows something, and all notices until then.

    Raises:
        CutawayError: a request cannot be run, or ended without an answer.
    """
    notices: list[str] = []
    async for delta in deltas:
        _check(delta)
        notices += delta.notices
        if delta.text or delta.choices or delta.finish is not None:
            return delta, notices
    raise AssertionError("the last delta has a finish")


def _check(delta: Delta) -> None:
    """Raises ``Unfinished`` if a copy of a request ended without an answer."""
    if delta.finish is not None and delta.finish.reason not in FINISH_REASONS:
        raise Unfinished(delta.finish)


async def _send_events(send: Send, values: Iterable[object]) -> None:
    data = b"".join(map(event, values))
    if data:
        await send({"type": "http.response.body", "body": data, "more_body": True})
