"""Where the time of one request went, as its client is told if it wants to know.

Owns the shape. Refuses to know how it is asked for. The numbers are those of the receipt, as in the metrics.
"""

from collections.abc import Sequence
from typing import Any

from cutaway.engine.client import EngineClient
from cutaway.errors import InvalidValue
from cutaway.glass.measures import Measures, measure
from cutaway.types import GenerationRequest

HEADER = "x-cutaway-timings"
SWITCH = {"1": True, "true": True, "0": False, "false": False}
NUM_DIGITS = 3  # of a millisecond; clocks of systems are not much finer


def read_header(value: str | None) -> bool:
    """Whether the header asks for timings.

    Raises:
        InvalidValue: it says neither yes nor no.
    """
    if value is None:
        return False
    if value not in SWITCH:
        raise InvalidValue(HEADER, f"{value[:20]!r} is none of {', '.join(SWITCH)}")
    return SWITCH[value]


def refuse_header(value: str | None) -> None:
    """Raises ``InvalidValue`` if the header asks for timings of an answer that has none."""
    if read_header(value):
        raise InvalidValue(HEADER, "only chat completions tell timings", hint="leave it out")


def tell_timings(engine: EngineClient, request: GenerationRequest, request_id: str) -> dict[str, Any]:
    """The timings of a request whose copies have all ended; ``request_id`` is how the client knows it."""
    receipts = [engine.receipt(request.request_id, index) for index in range(request.n)]
    return timings_object(request_id, [None if receipt is None else measure(receipt) for receipt in receipts])


def timings_object(request_id: str, measures: Sequence[Measures | None]) -> dict[str, Any]:
    """The timings of each copy of a request.

    Args:
        request_id: as the client knows it.
        measures: of each copy; ``None`` for one whose receipt is gone.
    """
    return {"request_id": request_id, "choices": [_choice(index, each) for index, each in enumerate(measures)]}


def _choice(index: int, measures: Measures | None) -> dict[str, Any]:
    if measures is None:
        return {"index": index, "queue_ms": None, "prefill_ms": None, "decode_ms": None, "token_ms": None}
    return {
        "index": index,
        "queue_ms": _milliseconds(measures.queue_ns),
        "prefill_ms": _milliseconds(measures.prefill_ns),
        "decode_ms": _milliseconds(measures.decode_ns),
        "token_ms": [_milliseconds(token_ns) for token_ns in measures.token_ns],
    }


def _milliseconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else round(nanoseconds / 1e6, NUM_DIGITS)
