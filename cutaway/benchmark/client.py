"""Asking one server that speaks the protocol of OpenAI, and noting when its answer came.

Owns the wire: the body of a request, its stream of server-sent events, and what counts as a failure. Refuses to know
how many are asked, and when. Invariant: a request ends as an ``Answered`` or a ``Failed``; nothing is raised.
"""

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2

from cutaway.benchmark.prompts import Prompt
from cutaway.errors import InvalidValue
from cutaway.limits import check_number

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
ENDPOINTS = (CHAT, COMPLETIONS)
MAX_ERROR_BYTES = 64 << 10
MAX_ERROR_CHARS = 300
DONE = "[DONE]"

MAX_PORT = 65_535


@dataclass(frozen=True, slots=True)
class Target:
    """Whom to ask, and how.

    Attributes:
        url: of the server, with or without the ``/v1`` of the endpoint.
        model: name that the server knows it by.
        endpoint: one of ``ENDPOINTS``.
        api_key: sent as a bearer token, if there is one.
        ignore_eos: ask the server to go on to ``max_tokens``, a request that not every server knows.
        timeout: seconds for a whole answer.

    Raises:
        InvalidValue: a value cannot be used.
    """

    url: str
    model: str
    endpoint: str = CHAT
    api_key: str | None = field(default=None, repr=False)
    ignore_eos: bool = False
    timeout: float = 600.0

    def __post_init__(self) -> None:
        check_number("timeout", self.timeout)
        try:
            url = httpx2.URL(self.url)
        except (httpx2.InvalidURL, ValueError) as error:
            raise InvalidValue("url", f"{self.url!r} cannot be used: {error}") from None
        if url.scheme not in ("http", "https") or not url.host:
            raise InvalidValue("url", f"{self.url!r} is no address of a server", hint="as in http://127.0.0.1:8000")
        if url.port is not None and not 1 <= url.port <= MAX_PORT:
            raise InvalidValue("url", f"port {url.port} of {self.url!r} is outside its limits, 1 to {MAX_PORT:,}")
        if self.endpoint not in ENDPOINTS:
            raise InvalidValue("endpoint", f"{self.endpoint!r} is none of {', '.join(ENDPOINTS)}")
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.isprintable()):
            raise InvalidValue("api_key", "it has characters that no header can carry")  # and is not shown

    @property
    def address(self) -> str:
        """Where requests go."""
        return self.url.rstrip("/").removesuffix("/v1") + self.endpoint

    def body(self, prompt: Prompt) -> dict[str, object]:
        """Of the request for an answer, which takes the most likely tokens so that it can be repeated."""
        asked: dict[str, object] = {"prompt": prompt.text}
        if self.endpoint == CHAT:
            asked = {"messages": [{"role": "user", "content": prompt.text}]}
        return {
            "model": self.model,
            **asked,
            "max_tokens": prompt.max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **({"ignore_eos": True} if self.ignore_eos else {}),
        }


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer that came to its end. Times are seconds of ``time.perf_counter``.

    Attributes:
        prompt: what was asked.
        sent_s: when.
        chunks_s: when each event with ``choices`` came; at least one.
        text: the whole answer.
        num_text_chunks: events with text.
        num_input_tokens, num_output_tokens: what the server says; ``None`` if it does not.
    """

    prompt: Prompt
    sent_s: float
    chunks_s: tuple[float, ...]
    text: str
    num_text_chunks: int
    num_input_tokens: int | None
    num_output_tokens: int | None


@dataclass(frozen=True, slots=True)
class Failed:
    """A request that got no answer, or not all of it, and why."""

    reason: str


Reply = Answered | Failed


def open_client(target: Target) -> httpx2.AsyncClient:
    """A client with as many connections as there are requests; the caller closes it."""
    headers = {} if target.api_key is None else {"Authorization": f"Bearer {target.api_key}"}
    return httpx2.AsyncClient(
        headers=headers, timeout=None, limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    )


async def ask(client: httpx2.AsyncClient, target: Target, prompt: Prompt) -> Reply:
    """Send a request and read its answer."""
    try:
        async with asyncio.timeout(target.timeout):
            return await _ask(client, target, prompt)
    except TimeoutError:
        return Failed(f"there was no whole answer within {target.timeout:g} s")
    except httpx2.HTTPError as error:
        return Failed(f"{type(error).__name__}: {_short(str(error)) or 'the connection broke'}")


async def _ask(client: httpx2.AsyncClient, target: Target, prompt: Prompt) -> Reply:
    answer = _Answer(prompt, time.perf_counter())
    async with client.stream("POST", target.address, json=target.body(prompt)) as response:
        if response.status_code != httpx2.codes.OK:
            return Failed(f"HTTP {response.status_code}: {await _read_error(response)}")
        async for event in httpx2.EventSource(response):
            failure = answer.take(event.data, time.perf_counter())
            if failure is not None:
                return Failed(failure)
    return answer.end()


class _Answer:
    """An answer as far as it has come."""

    def __init__(self, prompt: Prompt, sent_s: float) -> None:
        self._prompt = prompt
        self._sent_s = sent_s
        self._chunks_s: list[float] = []
        self._texts: list[str] = []
        self._usage: Mapping[str, Any] = {}
        self._is_done = False

    def take(self, data: str, at_s: float) -> str | None:
        """Note an event; what is wrong with it, if anything is."""
        if data == DONE:
            self._is_done = True
            return None
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            return f"an event is no JSON object: {_short(data)}"
        if value.get("error"):
            return f"the stream has an error: {_short(_message(value))}"
        if isinstance(value.get("usage"), dict):
            self._usage = value["usage"]
        choices = value.get("choices")
        if choices:
            self._chunks_s.append(at_s)
            return self._take_choice(choices[0] if isinstance(choices, list) else None)
        return None

    def _take_choice(self, choice: object) -> str | None:
        if not isinstance(choice, dict):
            return "an event has choices that are no objects"
        delta = choice.get("delta")
        text = delta.get("content") if isinstance(delta, dict) else choice.get("text")
        if isinstance(text, str) and text:
            self._texts.append(text)
        self._is_done = self._is_done or choice.get("finish_reason") is not None
        return None

    def end(self) -> Reply:
        """The stream has ended."""
        if not self._is_done:
            return Failed(f"the stream was cut after {len(self._chunks_s):,} chunks: no finish_reason and no {DONE}")
        if not self._chunks_s:
            return Failed("the stream had no event with choices")
        return Answered(
            self._prompt,
            self._sent_s,
            tuple(self._chunks_s),
            "".join(self._texts),
            len(self._texts),
            self._count("prompt_tokens"),
            self._count("completion_tokens"),
        )

    def _count(self, name: str) -> int | None:
        count = self._usage.get(name)
        return count if isinstance(count, int) and count >= 0 else None


async def _read_error(response: httpx2.Response) -> str:
    """What a server says that refuses."""
    content = bytearray()
    async for chunk in response.aiter_bytes():
        content += chunk
        if len(content) > MAX_ERROR_BYTES:
            break
    text = content.decode("utf-8", "replace")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    return _short(_message(value) if isinstance(value, dict) else text) or response.reason_phrase


def _message(value: Mapping[str, Any]) -> str:
    """The message in any of the shapes that servers give an error."""
    error = value.get("error", value)
    if isinstance(error, dict):
        error = error.get("message", error.get("detail", error))
    return error if isinstance(error, str) else json.dumps(error, ensure_ascii=False)


def _short(text: str) -> str:
    """In one line, and not too long."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_ERROR_CHARS else line[:MAX_ERROR_CHARS] + "…"
