"""Where the loop of an engine runs: what an engine asks of such a place, and a thread of this process as one."""

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from cutaway.engine.core import EngineCore
from cutaway.engine.loop import STOPPED, EngineLoop
from cutaway.engine.messages import Command, Report
from cutaway.glass.receipt import ModelFacts


@dataclass(frozen=True, slots=True)
class Listener:
    """Who hears what comes from a worker. Called from the worker's own threads.

    Attributes:
        take: a report came.
        lose: everything under way is lost, for this cause; nothing more comes of it.
    """

    take: Callable[[Report], None]
    lose: Callable[[str], None]


class Worker(Protocol):
    """Runs an ``EngineLoop`` somewhere."""

    @property
    def model(self) -> ModelFacts:
        """The model that it runs."""
        ...

    @property
    def stopped(self) -> bool:
        """Whether it will never carry out a command again."""
        ...

    def start(self, listener: Listener) -> None:
        """Begin to carry out commands."""
        ...

    def send(self, command: Command) -> None:
        """Give a command; they are carried out in order, those that come too late not at all."""
        ...

    def join(self) -> None:
        """Wait for its end, after it was told to stop."""
        ...


class ThreadWorker:
    """Runs a core in a thread of this process.

    Args:
        core: what runs; it belongs to the worker from now on.
    """

    def __init__(self, core: EngineCore) -> None:
        self.model = core.recorder.model
        self.stopped = False
        self._core = core
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self, listener: Listener) -> None:
        """Begin to carry out commands."""
        self._thread = threading.Thread(target=self._run, args=(listener,), name="cutaway-engine", daemon=True)
        self._thread.start()

    def send(self, command: Command) -> None:
        """Give a command."""
        self._commands.put(command)

    def join(self) -> None:
        """Wait for its end."""
        assert self._thread is not None, "it was started"
        self._thread.join()

    def _run(self, listener: Listener) -> None:
        cause = STOPPED
        try:
            EngineLoop(self._core, self._receive, listener.take).run()
        except BaseException as error:
            cause = f"the engine broke: {type(error).__name__}: {error}"
            raise  # a bug: let the interpreter say where
        finally:
            self.stopped = True
            listener.lose(cause)

    def _receive(self, wait: bool) -> Command | None:
        try:
            return self._commands.get(block=wait)
        except queue.Empty:
            return None
