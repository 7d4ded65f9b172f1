"""Which client waits for what: the client's half of an engine."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cutaway.engine.messages import Event
from cutaway.types import Delta, Finish, FinishReason, Usage

Sink = Callable[[Delta], bool]


@dataclass(slots=True)
class _Stream:
    """Who waits for a request, and how far its copies have come: tokens of those that have not ended.

    ``sink`` takes a delta, and says whether there is still somebody to take it.
    """

    sink: Sink
    num_prompt_tokens: int
    num_generated: dict[int, int]

    def give(self, delta: Delta) -> bool:
        """Hand a delta over; false if nobody will ever read it."""
        if delta.finish is None:
            self.num_generated[delta.index] += len(delta.choices)
        else:
            del self.num_generated[delta.index]
        return self.sink(delta)


class Streams:
    """Brings each delta to whoever waits for it. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._streams: dict[str, _Stream] = {}  # by request id

    def open(self, request_id: str, num_copies: int, num_prompt_tokens: int, sink: Sink) -> bool:
        """Let a client wait for a request; false if somebody waits for one of that id."""
        with self._lock:
            if request_id in self._streams:
                return False
            self._streams[request_id] = _Stream(sink, num_prompt_tokens, dict.fromkeys(range(num_copies), 0))
            return True

    def take(self, events: Iterable[Event]) -> set[str]:
        """Hand out what is new; the ids of requests that go on though nobody waits for them."""
        nobodys: set[str] = set()
        with self._lock:
            for event in events:
                stream = self._streams.get(event.request_id)
                if (stream is None or not stream.give(event.delta)) and event.delta.finish is None:
                    nobodys.add(event.request_id)
                if stream is not None and not stream.num_generated:
                    del self._streams[event.request_id]
        return nobodys

    def lose(self, cause: str) -> None:
        """Tell everybody who waits that nothing will come: their requests have failed."""
        with self._lock:
            for stream in self._streams.values():
                for index, num_generated in list(stream.num_generated.items()):
                    usage = Usage(stream.num_prompt_tokens, num_generated)
                    stream.give(Delta("", finish=Finish(FinishReason.FAILED, cause, usage), index=index))
            self._streams.clear()
