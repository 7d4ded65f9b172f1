"""What the next plan has to tell the executor about requests that it does not compute."""

from collections.abc import Sequence


class ExecutorNews:
    """Knows whom the executor knows. Each piece of news is told once."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._released: list[str] = []
        self._preempted: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._released or self._preempted)

    def introduce(self, request_id: str) -> bool:
        """A request is computed for the first time, or again; true if for the first time."""
        is_new = request_id not in self._known
        self._known.add(request_id)
        return is_new

    def preempt(self, request_id: str) -> None:
        """A request's block tables are empty."""
        self._preempted.append(request_id)

    def release(self, request_id: str) -> None:
        """A request has ended; news only if the executor knows it, and then the only one about it."""
        if request_id in self._preempted:
            self._preempted.remove(request_id)
        if request_id in self._known:
            self._known.remove(request_id)
            self._released.append(request_id)

    def take(self) -> tuple[Sequence[str], Sequence[str]]:
        """Whom to forget, and whose tables are empty."""
        released, preempted = self._released, self._preempted
        self._released, self._preempted = [], []
        return released, preempted
