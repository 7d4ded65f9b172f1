"""A stream on its way to a client: pings while it is silent, errors before and after its beginning, leaving."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from cutaway.api.anthropic import message_call
from cutaway.api.anthropic_reply import StreamedMessage
from cutaway.api.failure import Unfinished
from cutaway.api.openai import chat_call
from cutaway.api.openai_reply import Head, StreamedAnswer
from cutaway.api.response import StreamedResponse
from cutaway.api.sse import DONE, PING
from cutaway.api.vendor import ANTHROPIC, OPENAI, Vendor
from cutaway.errors import CutawayError, InvalidValue
from cutaway.types import Delta, Finish, FinishReason, Usage

ASKED = {"model": "m", "max_tokens": 8, "messages": [{"role": "user", "content": "a"}], "stream": True}
TOKEN = Delta("yes", usage=Usage(10, 1))
END = Delta("", finish=Finish(FinishReason.STOP, "because", Usage(10, 2)))
FAILED = Delta("", finish=Finish(FinishReason.FAILED, "because", Usage(10, 0)))
SOON, NEVER = 0.001, 1e9


class ToldEngine:
    """An engine that says what it is told to."""

    def __init__(self) -> None:
        self.told: asyncio.Queue[Delta | CutawayError] = asyncio.Queue()
        self.is_busy = False

    async def submit(self) -> AsyncGenerator[Delta, None]:
        self.is_busy = True
        finish = None
        try:
            while finish is None:
                said = await self.told.get()
                if isinstance(said, CutawayError):
                    raise said
                finish = said.finish
                yield said
        finally:
            self.is_busy = False


class Client:
    """One request for a stream, and what came of it."""

    def __init__(self, vendor: Vendor) -> None:
        self.engine = ToldEngine()
        self.left = asyncio.Event()
        self.num_turns_to_send = 0
        self.messages: list[Any] = []
        self.news = asyncio.Condition()
        if vendor.ping:
            call: Any = message_call(ASKED, "m", "msg_1", 0)
            reply: Any = StreamedMessage(call)
        else:
            call = chat_call(ASKED, "m", "chatcmpl-1", 0)
            reply = StreamedAnswer(call, lambda token_id: pytest.fail("it has no tokens"), Head("1", 0, "m", "fp"))
        self.response = StreamedResponse(self.engine.submit(), reply, vendor, "req_1")

    async def receive(self) -> dict[str, str]:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        for _ in range(self.num_turns_to_send):
            await asyncio.sleep(0)
        async with self.news:
            self.messages.append(message)
            self.news.notify_all()

    async def wait(self, holds: Callable[[], bool]) -> None:
        """Wait until something is so after a message."""
        async with self.news:
            await self.news.wait_for(holds)

    def tell(self, *said: Delta | CutawayError) -> None:
        for each in said:
            self.engine.told.put_nowait(each)

    @property
    def bodies(self) -> list[bytes]:
        return [message["body"] for message in self.messages if message["type"] == "http.response.body"]

    @property
    def names(self) -> list[str]:
        """The names of all events, and of pings that follow each other only one."""
        lines = b"".join(self.bodies).decode().splitlines()
        names = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
        return [name for index, name in enumerate(names) if name != "ping" or names[index - 1 : index] != ["ping"]]


def play(vendor: Vendor, script: Callable[[Client], Awaitable[None]]) -> Client:
    """Run a request while a script tells engine and client what to do."""

    async def run() -> Client:
        client = Client(vendor)
        answering = asyncio.ensure_future(client.response({"type": "http"}, client.receive, client.send))
        try:
            await script(client)
            await answering
        finally:
            answering.cancel()
        assert not client.engine.is_busy
        return client

    return asyncio.run(asyncio.wait_for(run(), 30))


def check_ended(client: Client) -> None:
    """The response has one beginning and one end."""
    assert [message["type"] for message in client.messages].count("http.response.start") == 1
    assert client.messages[0]["type"] == "http.response.start"
    assert [message.get("more_body") for message in client.messages[1:]] == [True] * (len(client.messages) - 2) + [
        False
    ]


START = ["message_start", "content_block_start", "ping"]
STOP = ["content_block_stop", "message_delta", "message_stop"]


def test_a_silent_stream_says_ping_before_the_first_token_and_between_tokens() -> None:
    async def script(client: Client) -> None:
        await client.wait(lambda: client.bodies.count(PING) >= 3)
        client.tell(TOKEN)
        await client.wait(lambda: b"yes" in b"".join(client.bodies))
        num_pings = client.bodies.count(PING)
        await client.wait(lambda: client.bodies.count(PING) >= num_pings + 2)
        client.tell(TOKEN, END)

    client = play(replace(ANTHROPIC, ping_seconds=SOON), script)
    check_ended(client)
    without_pings = [name for name in client.names if name != "ping"]
    assert client.names[:4] == ["ping", *START]
    assert without_pings == [*START[:2], "content_block_delta", "content_block_delta", *STOP]


def test_a_stream_that_is_not_silent_has_the_one_ping_of_its_beginning() -> None:
    async def script(client: Client) -> None:
        client.tell(TOKEN, TOKEN, END)

    client = play(replace(ANTHROPIC, ping_seconds=NEVER), script)
    check_ended(client)
    assert client.names == [*START, "content_block_delta", "content_block_delta", *STOP]


@pytest.mark.parametrize("failure", [FAILED, InvalidValue("messages", "no")])
def test_an_error_before_anything_was_sent_is_raised(failure: Delta | CutawayError) -> None:
    async def script(client: Client) -> None:
        client.tell(failure)

    for vendor in (OPENAI, replace(ANTHROPIC, ping_seconds=NEVER)):
        with pytest.raises((Unfinished, InvalidValue)):
            play(vendor, script)


@pytest.mark.parametrize("failure", [FAILED, InvalidValue("messages", "no")])
@pytest.mark.parametrize("num_tokens", [0, 2])
def test_an_error_after_the_first_event_is_the_last_event(failure: Delta | CutawayError, num_tokens: int) -> None:
    async def script(client: Client) -> None:
        if num_tokens == 0:
            await client.wait(lambda: PING in client.bodies)
        client.tell(*[TOKEN] * num_tokens, failure)

    client = play(replace(ANTHROPIC, ping_seconds=NEVER if num_tokens else SOON), script)
    check_ended(client)
    expected = [*START, *["content_block_delta"] * num_tokens] if num_tokens else ["ping"]
    assert client.names == [*expected, "error"]
    assert client.bodies[-1].startswith(b'event: error\ndata: {"type":"error","error":{"type":"')


def test_clients_that_know_no_pings_get_none() -> None:
    async def script(client: Client) -> None:
        await asyncio.sleep(20 * SOON)
        assert client.messages == []
        client.tell(TOKEN, END)

    client = play(replace(OPENAI, ping_seconds=SOON), script)
    check_ended(client)
    assert client.names == []
    assert client.bodies[-1] == DONE


@pytest.mark.parametrize("told", [[], [TOKEN]])
def test_a_client_that_leaves_while_pings_come_ends_its_request(told: list[Delta]) -> None:
    async def script(client: Client) -> None:
        client.tell(*told)
        await client.wait(lambda: client.bodies.count(PING) >= 2)
        client.left.set()

    client = play(replace(ANTHROPIC, ping_seconds=SOON), script)
    assert client.messages[-1]["more_body"]


def test_events_wait_for_a_client_that_reads_slowly_and_stay_in_order() -> None:
    async def script(client: Client) -> None:
        client.num_turns_to_send = 20
        client.tell(*[TOKEN] * 20, END)

    client = play(replace(ANTHROPIC, ping_seconds=0), script)
    check_ended(client)
    assert [name for name in client.names if name != "ping"] == [*START[:2], *["content_block_delta"] * 20, *STOP]
