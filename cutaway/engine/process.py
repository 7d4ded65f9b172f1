"""An engine's loop in a process of its own.

The process loads the model, says that it is ready, and then takes commands and sends reports over one pipe, as plain
pickled data. It ends when it is told to, and at once when its parent has ended. When it dies, the pipe breaks at once:
whoever waits hears it, and another process is started in its place.
"""

import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler

from cutaway.engine.core import EngineCore
from cutaway.engine.loop import STOPPED, EngineLoop
from cutaway.engine.messages import Command, Report, Stop
from cutaway.engine.worker import Listener
from cutaway.errors import CutawayError, EngineStopped
from cutaway.glass.receipt import ModelFacts

# After so many processes in a row that ended before they were ready, no other is started.
MAX_FAILED_STARTS = 3
SECONDS_BETWEEN_STARTS = 0.5

# A process that has been told to close and still does not is ended.
SECONDS_TO_CLOSE = 5.0

Load = Callable[[], EngineCore]
Message = ModelFacts | CutawayError | Report  # it is ready; it cannot be; it goes on


class ProcessWorker:
    """Runs a core in a process of its own, and starts another one when it dies.

    Args:
        load: makes the core, in that process; a function that pickle finds by its name, or a partial of one.
    """

    def __init__(self, load: Load) -> None:
        self.stopped = False
        self._load = load
        self._stop: Stop | None = None
        self._commands: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()  # pickled
        self._child = _Child(load)
        self._model: ModelFacts | None = None
        self._supervisor: threading.Thread | None = None

    @property
    def model(self) -> ModelFacts:
        """The model that it runs."""
        assert self._model is not None, "it is ready"
        return self._model

    def wait(self) -> ModelFacts:
        """Wait until the process is ready.

        Raises:
            CutawayError: the model cannot be loaded.
            EngineStopped: the process died meanwhile.
        """
        try:
            message = self._child.receive()
            if isinstance(message, CutawayError):
                raise message
            if not isinstance(message, ModelFacts):
                raise EngineStopped(self._child.cause_of_death())
        except BaseException:  # Ctrl-C, too
            self._child.kill()
            raise
        self._model = message
        return message

    def start(self, listener: Listener) -> None:
        """Begin to carry out commands."""
        self._supervisor = threading.Thread(
            target=self._supervise, args=(listener,), name="cutaway-engine", daemon=True
        )
        self._supervisor.start()
        threading.Thread(target=self._pass_on, name="cutaway-engine-commands", daemon=True).start()

    def send(self, command: Command) -> None:
        """Give a command.

        Raises:
            Exception: what pickle says about a command with something in it that cannot cross processes.
        """
        if isinstance(command, Stop) and self._stop is not Stop.CLOSE:
            self._stop = command
        self._commands.put(bytes(ForkingPickler.dumps(command)))
        self._spare_loading()

    def join(self) -> None:
        """Wait for its end; one that does not close in time, because it hangs, is ended."""
        assert self._supervisor is not None, "it was started"
        while self._stop is not Stop.CLOSE and self._supervisor.is_alive():
            self._supervisor.join(SECONDS_BETWEEN_STARTS)
        self._supervisor.join(SECONDS_TO_CLOSE)
        if self._supervisor.is_alive():
            self._child.kill()
            self._supervisor.join()

    def _supervise(self, listener: Listener) -> None:
        """Hand on what comes, and replace a process that has died. Each death loses what was under way."""
        num_failed_starts, cause = 0, STOPPED
        try:
            while True:
                cause = self._listen(listener)
                num_failed_starts = 0 if self._child.is_ready else num_failed_starts + 1
                if self._stop or num_failed_starts == MAX_FAILED_STARTS or not threading.main_thread().is_alive():
                    break
                # First the new process, then the news: a command that follows the news finds the new process.
                try:
                    self._start_another()
                except OSError as error:  # the system has no room for one now
                    listener.lose(f"{cause}; another one cannot be started yet: {error}")
                    time.sleep(SECONDS_BETWEEN_STARTS)
                else:
                    listener.lose(f"{cause}; another one is being started")
        finally:
            self.stopped = True
            self._commands.put(None)
            self._child.kill()
            listener.lose(cause)

    def _listen(self, listener: Listener) -> str:
        """Hand on what comes until the process is gone; why it is."""
        error: CutawayError | None = None
        while (message := self._child.receive()) is not None:
            if isinstance(message, Report):
                listener.take(message)
            elif isinstance(message, CutawayError):
                error = message
        died = self._child.cause_of_death()
        if error is not None:
            return f"the engine could not be started again: {error.message}"
        if self._stop is Stop.CLOSE or (self._stop and not self._child.has_failed):
            return STOPPED
        return died

    def _start_another(self) -> None:
        self._child = _Child(self._load)
        if self._stop:
            self.send(self._stop)  # it may have gone to the dead one

    def _spare_loading(self) -> None:
        """End a process that is told to close before it is ready: nothing runs, and loading may take long."""
        if self._stop is Stop.CLOSE and not self._child.is_ready:
            self._child.kill()

    def _pass_on(self) -> None:
        """Send commands to whichever process there is; a thread of its own, because a full pipe blocks."""
        while (pickled := self._commands.get()) is not None:
            self._child.send(pickled)


class _Child:
    """One process, as its parent sees it."""

    def __init__(self, load: Load) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would inherit locks that threads hold
        self.is_ready = False
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_run, args=(load, theirs), name="cutaway-engine", daemon=True)
        with _interrupts_blocked():
            self._process.start()
        theirs.close()

    def receive(self) -> Message | None:
        """The next message, or ``None`` when the process is gone."""
        try:
            message: Message = self._connection.recv()
        except (EOFError, OSError):
            return None
        if isinstance(message, ModelFacts):
            self.is_ready = True
        return message

    def send(self, pickled: bytes) -> None:
        """Give a command; to a process that is gone, nothing."""
        with suppress(OSError):
            self._connection.send_bytes(pickled)

    @property
    def has_failed(self) -> bool:
        """Whether it ended otherwise than it should."""
        return bool(self._process.exitcode)

    def cause_of_death(self) -> str:
        """Why the process is gone."""
        self._process.join()
        code = self._process.exitcode or 0
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"the engine process {'was killed' if code < 0 else 'ended'} ({how})"

    def kill(self) -> None:
        """End the process, if it has not ended."""
        self._process.kill()
        self._process.join()


class _Parent:
    """The other end of the pipe, as the process sees it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._is_gone = False

    def receive(self, wait: bool) -> Command | None:
        """The next command; ``Stop.CLOSE`` once the parent is gone."""
        if self._is_gone:
            return None
        try:
            if not (wait or self._connection.poll()):
                return None
            command: Command = self._connection.recv()
        except (EOFError, OSError):
            self._is_gone = True
            return Stop.CLOSE
        return command

    def send(self, message: Message) -> None:
        """Say something; when the parent is gone, ``receive`` will tell."""
        with suppress(OSError):
            self._connection.send(message)


def _run(load: Load, connection: Connection) -> None:
    """What the process does."""
    threading.Thread(target=_end_with_parent, name="cutaway-parent", daemon=True).start()
    parent = _Parent(connection)
    try:
        core = load()
    except CutawayError as error:
        parent.send(error)
        return
    parent.send(core.recorder.model)
    EngineLoop(core, parent.receive, parent.send).run()


def _end_with_parent() -> None:
    """End at once when the parent has ended: nobody is left to work for."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "a process of multiprocessing has a parent"
    parent.join()
    os._exit(1)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Start processes that never see Ctrl-C: what runs in a terminal gets it too, and decides what becomes of them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield  # a system without signal masks
        return
    resource_tracker.ensure_running()  # the first start of a process would start it, and unblock signals afterwards
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
