"""The loop that runs an engine core: commands in, steps, reports out. The same in a thread and in a process."""

from collections.abc import Callable

from cutaway.engine.client import EngineStats
from cutaway.engine.core import EngineCore
from cutaway.engine.messages import Abort, Add, Command, Event, Pin, Release, Report, Stop

STOPPED = "the engine was stopped"


class EngineLoop:
    """Runs a core until it is told to stop.

    Args:
        core: what runs; it belongs to the loop from now on.
        receive: the next command; waits for one if asked to, else gives ``None`` when there is none.
        send: takes a report.
    """

    def __init__(
        self, core: EngineCore, receive: Callable[[bool], Command | None], send: Callable[[Report], None]
    ) -> None:
        self._core = core
        self._receive = receive
        self._send = send
        self._stop: Stop | None = None
        self._told: EngineStats | None = None

    def run(self) -> None:
        """Work until stopped."""
        self._report([])
        while not (self._stop and not self._core.num_live):
            self._obey()
            self._report(self._core.step())
            if not self._core.num_live:
                self._core.step()  # tells the runner which requests it can forget

    def _obey(self) -> None:
        """Carry out all commands; wait for the first when there is nothing else to do."""
        wait = not (self._core.num_live or self._stop)
        while (command := self._receive(wait)) is not None:
            wait = False
            match command:
                case Add(stream_id, prepared):
                    self._report(self._core.add(stream_id, prepared))
                case Abort(stream_id):
                    self._report(self._core.abort(stream_id, "the client left"))
                case Pin():
                    self._report([], ((command.call_id, self._core.pin(command)),))
                case Release(pin_id):
                    self._core.release(pin_id)
                    self._report([])
                case Stop() if self._stop is not Stop.CLOSE:
                    self._stop = command
        if self._stop is Stop.CLOSE:
            self._report(self._core.abort_all(STOPPED))

    def _report(self, events: list[Event], pinned: tuple[tuple[int, int], ...] = ()) -> None:
        """Say what is new, if anything is."""
        stats = self._stats()
        if events or pinned or stats != self._told:
            self._told = stats
            self._send(Report(tuple(events), stats, pinned))

    def _stats(self) -> EngineStats:
        scheduler = self._core.scheduler
        cache = scheduler.cache
        return EngineStats(
            scheduler.num_running,
            scheduler.num_waiting,
            cache.num_free_blocks,
            cache.num_blocks,
            scheduler.queue.num_forks,
        )
