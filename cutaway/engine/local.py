"""An engine in a thread of this process.

The thread owns the core; everybody else talks to it through a queue of commands, and hears from it through one
callback a request, called on the event loop of whoever asked.
"""

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from enum import Enum

from cutaway.engine.client import EngineStats
from cutaway.engine.core import EngineCore
from cutaway.engine.prepare import Prepared, Preparer
from cutaway.errors import EngineStopped
from cutaway.glass.receipt import ModelFacts, Receipt
from cutaway.types import Delta, Finish, FinishReason, GenerationRequest, Usage

Sink = Callable[[Delta], None]
SECONDS_BETWEEN_LOOKS = 1.0


@dataclass(frozen=True, slots=True)
class _Add:
    prepared: Prepared
    sink: Sink


@dataclass(frozen=True, slots=True)
class _Abort:
    request_id: str


class _Stop(Enum):
    """Whether requests that run may finish when the engine stops."""

    DRAIN = "drain"
    CLOSE = "close"


Command = _Add | _Abort | _Stop


class LocalEngine:
    """``EngineClient`` over a core in a thread.

    Args:
        core: what runs; it belongs to the engine from now on.
        preparer: turns requests into prompts, on the caller's side.
    """

    def __init__(self, core: EngineCore, preparer: Preparer) -> None:
        self._core = core
        self._preparer = preparer
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._sinks: dict[str, Sink] = {}
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="cutaway-engine", daemon=True)
        self._thread.start()

    @property
    def model(self) -> ModelFacts:
        """The model that answers."""
        return self._core.recorder.model

    async def submit(self, request: GenerationRequest) -> AsyncIterator[Delta]:
        """Run a request; see ``EngineClient.submit``."""
        if self._stopping or not self._thread.is_alive():
            raise EngineStopped("the engine takes no more requests")
        prepared = await asyncio.to_thread(self._preparer.prepare, request)
        loop = asyncio.get_running_loop()
        deltas: asyncio.Queue[Delta] = asyncio.Queue()

        def sink(delta: Delta) -> None:
            loop.call_soon_threadsafe(deltas.put_nowait, delta)

        self._commands.put(_Add(prepared, sink))
        finished = False
        try:
            if prepared.notices:
                yield Delta("", notices=prepared.notices)
            while not finished:
                delta = await self._next(deltas)
                finished = delta.finish is not None
                yield delta
        finally:
            if not finished:
                self._commands.put(_Abort(request.request_id))

    async def abort(self, request_id: str) -> None:
        """End a request now."""
        self._commands.put(_Abort(request_id))

    def stats(self) -> EngineStats:
        """How busy the engine is now."""
        scheduler = self._core.scheduler
        return EngineStats(
            scheduler.num_running, scheduler.num_waiting, scheduler.cache.num_free_blocks, scheduler.cache.num_blocks
        )

    def receipt(self, request_id: str) -> Receipt | None:
        """The receipt of a finished request, while it is kept."""
        return self._core.recorder.receipt(request_id)

    async def drain(self) -> None:
        """Take no new requests, finish those that run, and stop."""
        self._stopping = True
        self._commands.put(_Stop.DRAIN)
        await asyncio.to_thread(self._thread.join)

    def close(self) -> None:
        """Stop: take no new requests, abort those that run, and wait for the step under way."""
        self._stopping = True
        self._commands.put(_Stop.CLOSE)
        self._thread.join()

    async def _next(self, deltas: asyncio.Queue[Delta]) -> Delta:
        """The next delta; looks now and then whether anybody is left to send one."""
        while True:
            try:
                return await asyncio.wait_for(deltas.get(), SECONDS_BETWEEN_LOOKS)
            except TimeoutError:
                if not self._thread.is_alive() and deltas.empty():
                    raise EngineStopped("the engine stopped while the request was running") from None

    def _run(self) -> None:
        while not (self._stopping and not self._core.live_ids and self._commands.empty()):
            self._obey()
            self._send(self._core.step())
            if not self._core.live_ids:
                self._core.step()  # tells the runner which requests it can forget

    def _obey(self) -> None:
        """Carry out all commands; wait for one when there is nothing else to do."""
        while not self._commands.empty() or not (self._core.live_ids or self._stopping):
            command = self._commands.get()
            if isinstance(command, _Add):
                prepared = command.prepared
                if prepared.new.request_id in self._sinks:
                    command.sink(_rejected(prepared))
                    continue
                self._sinks[prepared.new.request_id] = command.sink
                self._send(self._core.add(prepared.new, prepared.stop, prepared.draft))
            elif isinstance(command, _Abort):
                self._send(self._core.abort(command.request_id, "the client left"))
            elif command is _Stop.CLOSE:
                for request_id in self._core.live_ids:
                    self._send(self._core.abort(request_id, "the engine was stopped"))

    def _send(self, deltas: list[tuple[str, Delta]]) -> None:
        for request_id, delta in deltas:
            sink = self._sinks.pop(request_id) if delta.finish is not None else self._sinks[request_id]
            try:
                sink(delta)
            except RuntimeError:  # the client's event loop is gone, and with it whoever would read this
                self._commands.put(_Abort(request_id))


def _rejected(prepared: Prepared) -> Delta:
    """The answer to a request whose id is in use: the request that has it goes on undisturbed."""
    new = prepared.new
    cause = f"a request with the id {new.request_id!r} is running"
    return Delta("", finish=Finish(FinishReason.REJECTED, cause, Usage(len(new.token_ids), 0)))
