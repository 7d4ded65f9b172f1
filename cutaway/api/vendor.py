"""What the server must know of a vendor to answer its clients.

Owns the seam: an answer in a vendor's shapes, whole or as events, how its errors and events are written, and whose
client sent a request. Refuses to know fields. The vendors themselves are at the end.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cutaway.api import anthropic_error, openai_error
from cutaway.api.json_text import Json
from cutaway.api.sse import DONE, PING, event, typed_event
from cutaway.types import Delta

# What tells the clients of Anthropic from those of OpenAI: where they ask, or what they always say.
MESSAGES = "/v1/messages"
ANTHROPIC_VERSION = b"anthropic-version"


class ErrorReply(Protocol):
    """An error as it is sent."""

    @property
    def status(self) -> int:
        """Of HTTP."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """To send with it."""
        ...

    def body(self) -> Json:
        """The JSON object."""
        ...


class WholeReply(Protocol):
    """Collects the deltas of an answer that is given as one object."""

    def take(self, delta: Delta) -> None:
        """Take in a delta."""
        ...

    def complete(self, notices: Sequence[str]) -> Json:
        """The object, when every copy has ended; ``notices`` are what was changed about the request."""
        ...


class StreamedReply(Protocol):
    """Turns the deltas of an answer into the values of events."""

    def begin(self, first: Delta, notices: Sequence[str]) -> list[Json]:
        """What stands before the first delta."""
        ...

    def take(self, delta: Delta) -> list[Json]:
        """What a delta adds; nothing if there is nothing to show yet."""
        ...

    def end(self) -> list[Json]:
        """What follows the last delta."""
        ...


@dataclass(frozen=True, slots=True)
class Vendor:
    """How the clients of a vendor are talked to.

    Attributes:
        error_reply: an error for the request of an id.
        event: a value as an event of a stream.
        end: what ends a stream after the last event of an answer.
        ping: what says in a stream that the answer is still to come; empty if clients know no such thing.
        ping_seconds: how long a stream is silent before it says so.
    """

    error_reply: Callable[[Exception, str], ErrorReply]
    event: Callable[[Json], bytes]
    end: bytes
    ping: bytes
    ping_seconds: float = 15.0  # proxies lose patience after 50 to 120 seconds


OPENAI = Vendor(openai_error.error_reply, event, DONE, b"")
ANTHROPIC = Vendor(anthropic_error.error_reply, typed_event, b"", PING)


def vendor_of(scope: Mapping[str, Any]) -> Vendor:
    """Whose client sent a request, by its ASGI scope."""
    path: str = scope["path"]
    is_message = path == MESSAGES or path.startswith(f"{MESSAGES}/")
    says_so = any(name == ANTHROPIC_VERSION for name, _ in scope["headers"])
    return ANTHROPIC if is_message or says_so else OPENAI
