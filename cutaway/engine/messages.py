"""What the client's side of an engine and its loop say to each other. Plain data, so that it can cross processes."""

from dataclasses import dataclass
from enum import Enum

from cutaway.engine.client import EngineStats
from cutaway.engine.prepare import Prepared
from cutaway.glass.receipt import Receipt
from cutaway.types import Delta


@dataclass(frozen=True, slots=True)
class Add:
    """Run a request, with all its copies.

    Attributes:
        stream_id: unique among all requests of an engine, which a client's own id is not: it may be used again.
        prepared: the request.
    """

    stream_id: int
    prepared: Prepared


@dataclass(frozen=True, slots=True)
class Abort:
    """End a request, with all its copies. Unknown ids are nobody's."""

    stream_id: int


@dataclass(frozen=True, slots=True)
class Pin:
    """Keep what the cache has of a prompt; the answer comes under ``call_id``.

    Attributes:
        call_id: unique among the calls of an engine.
        pin_id: a pin of the same id is replaced.
        token_ids: the prompt.
        salt: of the requests that shall find it.
        seconds: how long.
    """

    call_id: int
    pin_id: str
    token_ids: tuple[int, ...]
    salt: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Release:
    """Let go of a pin. Unknown ids hold nothing."""

    pin_id: str


class Stop(Enum):
    """Take no more requests; whether those that run may finish."""

    DRAIN = "drain"
    CLOSE = "close"


Command = Add | Abort | Pin | Release | Stop


@dataclass(frozen=True, slots=True)
class Event:
    """Something new about a request; the receipt of a copy comes with its last delta."""

    stream_id: int
    delta: Delta
    receipt: Receipt | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What the loop has to say.

    Attributes:
        events: what is new, in order.
        stats: how busy the engine is after them.
        pinned: (call id, tokens held) for each pin that was asked for.
    """

    events: tuple[Event, ...]
    stats: EngineStats
    pinned: tuple[tuple[int, int], ...] = ()
