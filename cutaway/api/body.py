"""The body of an HTTP request, read under limits."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from starlette.requests import Request

from cutaway.api.failure import HttpError
from cutaway.limits import MAX_BODY_BYTES

JSON_TYPE = "application/json"
MAX_INLINE_BYTES = 64 << 10
T = TypeVar("T")


async def read_body(request: Request) -> bytes:
    """The JSON text that a client sent.

    Raises:
        HttpError: it says that it is something else, or it is too long.
        ClientDisconnect: the client left in the middle of it.
    """
    _check_headers(request)
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise _too_long()
    return bytes(body)


async def off_loop(body: bytes, work: Callable[[bytes], T]) -> T:
    """Do some work with a body: at once if it is short, else in a thread, so that the event loop goes on."""
    return work(body) if len(body) <= MAX_INLINE_BYTES else await asyncio.to_thread(work, body)


def _check_headers(request: Request) -> None:
    kind = ", ".join(part.partition(";")[0].strip().lower() for part in request.headers.getlist("content-type"))
    if kind != JSON_TYPE:
        # A page in a browser may send anything else to this machine without asking.
        raise HttpError(
            415, "unsupported_content_type", f"the content type {kind[:80]!r} is not {JSON_TYPE}", hint="say what it is"
        )
    coding = ", ".join(request.headers.getlist("content-encoding")) or "identity"
    if coding.lower() != "identity":
        raise HttpError(415, "unsupported_content_encoding", f"the content encoding {coding[:80]!r} is not supported")
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length[:20]) > MAX_BODY_BYTES:
        raise _too_long()


def _too_long() -> HttpError:
    return HttpError(413, "body_too_long", f"the body is longer than the limit of {MAX_BODY_BYTES:,} bytes")
