"""Who waits, and who is next.

Order: priority, then arrival. A request that has waited longer than the patience stands before every priority, for
good, so waiting is bounded whatever arrives later. A fork waits beside the queue until the prompt that it shares is
computed, so that it holds up nobody.
"""

from bisect import insort
from collections.abc import Iterator

from cutaway.scheduler.request import ScheduledRequest


class WaitingQueue:
    """Requests that wait, next one first.

    Args:
        patience_s: how long a request lets others go before it.
        max_waiting: requests that may wait; one that was preempted always may.
    """

    def __init__(self, patience_s: float, max_waiting: int) -> None:
        self.patience_s = patience_s
        self.max_waiting = max_waiting
        self._queue: list[ScheduledRequest] = []
        self._forks: dict[str, list[ScheduledRequest]] = {}  # by the id of the request whose prompt they share

    def __len__(self) -> int:
        return len(self._queue) + self.num_forks

    def __iter__(self) -> Iterator[ScheduledRequest]:
        """Those in the queue, next one first."""
        return iter(self._queue)

    @property
    def num_forks(self) -> int:
        """How many are beside the queue."""
        return sum(map(len, self._forks.values()))

    @property
    def forks(self) -> Iterator[ScheduledRequest]:
        """Those beside the queue."""
        for forks in self._forks.values():
            yield from forks

    @property
    def first(self) -> ScheduledRequest | None:
        """The next one."""
        return self._queue[0] if self._queue else None

    def why_full(self, count: int) -> str | None:
        """Why ``count`` more may not come to wait, or ``None``."""
        room = self.max_waiting - len(self)
        if count <= room:
            return None
        if count == 1:
            return f"the queue is full ({self.max_waiting:,} requests)"
        return f"the queue has room for {max(room, 0):,} of {count:,} copies (it holds {self.max_waiting:,} requests)"

    def put(self, request: ScheduledRequest) -> None:
        """Let a request wait at its place."""
        insort(self._queue, request, key=lambda waiting: waiting.rank)

    def put_beside(self, request: ScheduledRequest, parent_id: str) -> None:
        """Let a fork wait for the prompt of its parent."""
        self._forks.setdefault(parent_id, []).append(request)

    def let_forks_queue(self, parent_id: str) -> None:
        """The parent's prompt is computed, or will not be soon."""
        for fork in self._forks.pop(parent_id, ()):
            self.put(fork)

    def pop(self) -> ScheduledRequest:
        """Take out the next one."""
        return self._queue.pop(0)

    def remove(self, request: ScheduledRequest) -> None:
        """Take out one that is not coming."""
        beside = [] if request.new.fork_of is None else self._forks.get(request.new.fork_of, [])
        (beside if request in beside else self._queue).remove(request)

    def check(self) -> None:
        """Assert that the order is right, and that nobody who waits has anything."""
        assert [request.rank for request in self._queue] == sorted(request.rank for request in self._queue)
        assert all(not request.next_start for request in (*self._queue, *self.forks))

    def promote(self, now: float) -> None:
        """Move requests that have waited too long to the front, the oldest first."""
        latest_s = now - self.patience_s
        overdue = [request for request in self._queue if not request.overdue and request.waiting_since_s < latest_s]
        for request in overdue:
            request.overdue = True
        if overdue:
            self._queue.sort(key=lambda waiting: waiting.rank)
