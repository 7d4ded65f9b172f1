"""Which client waits for what: the client's half of an engine."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cutaway.engine.client import Progress, Watcher
from cutaway.engine.messages import Event
from cutaway.glass.receipt import Receipt
from cutaway.types import Delta, Finish, FinishReason, Usage

Sink = Callable[[Delta], bool]


@dataclass(slots=True)
class _Stream:
    """Who waits for a request, and how far its copies have come.

    Attributes:
        request_id: the client's.
        sink: takes a delta, and says whether there is still somebody to take it.
        num_generated: tokens of each copy that has not ended.
        watcher: hears of its progress.
        num_prompt_tokens: 0 until the request has begun.
        is_read: whether the prompt was read.
    """

    request_id: str
    sink: Sink
    num_generated: dict[int, int]
    watcher: Watcher
    num_prompt_tokens: int = 0
    is_read: bool = False

    def give(self, delta: Delta, receipt: Receipt | None = None) -> bool:
        """Hand a delta over; false if nobody will ever read it."""
        self.watcher(self._advance(delta, receipt))
        return self.sink(delta)

    def _advance(self, delta: Delta, receipt: Receipt | None) -> Progress:
        before = self.num_generated[delta.index]
        if delta.finish is None:
            after = self.num_generated[delta.index] = before + len(delta.choices)
        else:
            after = delta.finish.usage.completion_tokens  # more than before, if the text of the last token broke
            del self.num_generated[delta.index]
        num_read = 0 if self.is_read or not after else self.num_prompt_tokens
        self.is_read = self.is_read or after > 0
        return Progress(num_read, after - before, delta.finish, receipt)

    def end(self, reason: FinishReason, cause: str) -> None:
        """Give every copy that has not ended its end."""
        for index, num_generated in list(self.num_generated.items()):
            usage = Usage(self.num_prompt_tokens, num_generated)
            self.give(Delta("", finish=Finish(reason, cause, usage), index=index))


class Streams:
    """Brings each delta to whoever waits for it. Safe to use from several threads.

    Args:
        watcher: hears of the progress of all requests.
    """

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._lock = threading.Lock()
        self._streams: dict[int, _Stream] = {}

    def open(self, stream_id: int, request_id: str, num_copies: int, sink: Sink) -> bool:
        """Let a client wait for a request; false if somebody waits for one of that request id."""
        with self._lock:
            if any(stream.request_id == request_id for stream in self._streams.values()):
                return False
            self._streams[stream_id] = _Stream(request_id, sink, dict.fromkeys(range(num_copies), 0), self._watcher)
            return True

    def begin(self, stream_id: int, num_prompt_tokens: int) -> bool:
        """The request is a prompt of so many tokens and can be run; false if it was aborted meanwhile."""
        with self._lock:
            stream = self._streams.get(stream_id)
            if stream is not None:
                stream.num_prompt_tokens = num_prompt_tokens
            return stream is not None

    def forget(self, stream_id: int) -> None:
        """The client left before the request began."""
        with self._lock:
            self._streams.pop(stream_id, None)

    def abort(self, request_id: str) -> int | None:
        """End a request that has not begun, or give the id of its stream if it has; unknown ids are nobody's."""
        with self._lock:
            ids = [key for key, stream in self._streams.items() if stream.request_id == request_id]
            for stream_id in ids:
                if self._streams[stream_id].num_prompt_tokens:
                    return stream_id
                self._streams.pop(stream_id).end(FinishReason.ABORTED, "it was aborted before it began")
            return None

    @property
    def is_empty(self) -> bool:
        """Whether nobody waits for anything."""
        return not self._streams

    def take(self, events: Iterable[Event]) -> set[int]:
        """Hand out what is new; the ids of streams that go on though nobody waits for them."""
        nobodys: set[int] = set()
        with self._lock:
            for event in events:
                stream = self._streams.get(event.stream_id)
                if (stream is None or not stream.give(event.delta, event.receipt)) and event.delta.finish is None:
                    nobodys.add(event.stream_id)
                if stream is not None and not stream.num_generated:
                    del self._streams[event.stream_id]
        return nobodys

    def lose(self, cause: str) -> None:
        """Tell everybody whose request has begun that nothing will come: it has failed."""
        with self._lock:
            for stream_id, stream in list(self._streams.items()):
                if stream.num_prompt_tokens:
                    stream.end(FinishReason.FAILED, cause)
                    del self._streams[stream_id]
