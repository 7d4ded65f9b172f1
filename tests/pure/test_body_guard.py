"""Bodies that come slowly, and many at the same time."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from starlette.types import Message, Receive, Scope, Send

from cutaway.api.body_guard import BodyGuard, BodyLimits
from cutaway.api.failure import HttpError
from cutaway.api.openai_error import error_reply

SCOPE: Scope = {"type": "http"}


def part(body: bytes, more: bool) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


async def send_nothing(message: Message) -> None:
    raise AssertionError(message)


def saying(*messages: Message) -> Receive:
    """A client that says these things, and then nothing for ever."""
    left = list(messages)

    async def receive() -> Message:
        return left.pop(0) if left else await asyncio.Future()

    return receive


def reading(go_on: Callable[[], Awaitable[object]] | None = None, num_messages: int = 100) -> Callable[..., object]:
    """An app that reads so many messages or the whole body, and then waits."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for _ in range(num_messages):
            if not (await receive()).get("more_body"):
                break
        if go_on is not None:
            await go_on()

    return app


def test_a_body_that_is_not_there_in_time_is_refused_and_the_connection_closed() -> None:
    guard = BodyGuard(reading(), BodyLimits(seconds=0.01))  # type: ignore[arg-type]
    with pytest.raises(HttpError, match=r"0\.01 seconds") as caught:
        asyncio.run(guard(SCOPE, saying(part(b"{", True)), send_nothing))  # type: ignore[arg-type]
    reply = error_reply(caught.value, "r")
    assert (reply.status, reply.type, reply.headers) == (408, "invalid_request_error", {"connection": "close"})


def test_a_whole_body_has_no_deadline() -> None:
    heard: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        heard.append(await receive())
        heard.append(await receive())

    async def leave_late() -> Message:
        if heard:
            await asyncio.sleep(0.05)
            return {"type": "http.disconnect"}
        return part(b"{}", False)

    asyncio.run(BodyGuard(app, BodyLimits(seconds=0.01))(SCOPE, leave_late, send_nothing))
    assert [message["type"] for message in heard] == ["http.request", "http.disconnect"]


def test_bodies_count_until_their_requests_are_answered() -> None:
    async def play() -> None:
        answered = asyncio.Event()
        guard = BodyGuard(reading(answered.wait), BodyLimits(num_bytes=10))  # type: ignore[arg-type]

        def ask(size: int) -> "asyncio.Task[None]":
            return asyncio.create_task(guard(SCOPE, saying(part(b"x" * size, False)), send_nothing))  # type: ignore[arg-type]

        first, second = ask(4), ask(6)
        await asyncio.sleep(0.01)
        with pytest.raises(HttpError, match="limit of 10 bytes") as caught:
            await ask(1)
        reply = error_reply(caught.value, "r")
        assert (reply.status, reply.type, reply.code) == (503, "server_error", "overloaded")
        assert reply.headers == {"retry-after": "1"}
        empty = ask(0)  # what sends nothing is not to blame
        answered.set()
        await asyncio.gather(first, second, empty)
        await ask(10)

    asyncio.run(play())


def test_what_a_refused_request_has_sent_is_given_back() -> None:
    async def play() -> None:
        guard = BodyGuard(reading(), BodyLimits(num_bytes=10))  # type: ignore[arg-type]
        for _ in range(3):
            with pytest.raises(HttpError):
                await guard(SCOPE, saying(part(b"x" * 8, True), part(b"x" * 8, False)), send_nothing)  # type: ignore[arg-type]
        await guard(SCOPE, saying(part(b"x" * 10, False)), send_nothing)  # type: ignore[arg-type]

    asyncio.run(play())
