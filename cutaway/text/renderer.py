"""Runs chat templates in a process of their own and ends it when it does not come back.

Owns that process. Refuses to know templates and messages. Invariant: whatever a template does, ``render`` returns or
raises within the time given to it, and the next call finds a working process.
"""

import contextlib
import json
import signal
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, cast

from cutaway.errors import TemplateError

MAX_START_SECONDS = 60.0

_SCRIPT = Path(__file__).with_name("render_process.py")
_LENGTH = struct.Struct(">Q")
UNTRUSTED = "the template is broken or hostile; take the model from a source that you trust"


class Renderer:
    """One process for any number of templates. Threads may share it; they take turns.

    The process starts with the object, so that it is ready when it is needed; ``close`` ends it, and so does the end of
    the program.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child = _Child()

    def render(self, job: Mapping[str, object], seconds: float) -> Mapping[str, object]:
        """The reply of ``render_process`` to ``job``.

        Raises:
            TemplateError: the template took longer than ``seconds``, or its process died.
        """
        with self._lock:
            if not self._child.usable:
                self._child = _Child()
            return self._child.ask(job, seconds)

    def close(self) -> None:
        """End the process. A later ``render`` starts another one."""
        with self._lock:
            self._child.stop()


class _Child:
    """One life of the process."""

    def __init__(self) -> None:
        try:
            # A session of its own keeps Ctrl-C in a terminal from reaching it.
            self._process = subprocess.Popen(  # noqa: S603, the program and its argument are ours
                [sys.executable, "-I", str(_SCRIPT)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise TemplateError(f"the process for chat templates cannot be started: {error}") from None
        self._started = False
        self._finalizer = weakref.finalize(self, _end, self._process)

    @property
    def usable(self) -> bool:
        return self._finalizer.alive

    def stop(self) -> None:
        self._finalizer()

    def ask(self, job: Mapping[str, object], seconds: float) -> Mapping[str, object]:
        try:
            if not self._started:
                self._exchange(None, MAX_START_SECONDS, "the process for chat templates did not start")
                self._started = True
            return self._exchange(job, seconds, "the chat template did not end")
        except BaseException:
            # After an interrupt, too: a reply that nobody waits for must not answer the next question.
            self.stop()
            raise

    def _exchange(self, job: Mapping[str, object] | None, seconds: float, complaint: str) -> Mapping[str, object]:
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            self._process.kill()

        timer = threading.Timer(seconds, expire)
        timer.daemon = True
        timer.start()
        try:
            reply = self._talk(job)
        finally:
            timer.cancel()
        if reply is not None:
            return reply
        if expired.is_set():
            raise TemplateError(f"{complaint} within its limit of {seconds:g} seconds", hint=UNTRUSTED)
        status = _name(self._process.wait())
        raise TemplateError(f"the chat template broke the process that rendered it ({status})", hint=UNTRUSTED)

    def _talk(self, job: Mapping[str, object] | None) -> Mapping[str, object] | None:
        """Send the job, if there is one, and wait for a reply; ``None`` when the process is gone."""
        stdin = cast("BinaryIO", self._process.stdin)
        stdout = cast("BinaryIO", self._process.stdout)
        try:
            if job is not None:
                data = json.dumps(job).encode()
                stdin.write(_LENGTH.pack(len(data)) + data)
                stdin.flush()
        except BrokenPipeError:
            return None
        header = stdout.read(_LENGTH.size)
        if len(header) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack(header)
        data = stdout.read(length)
        return cast("Mapping[str, object]", json.loads(data)) if len(data) == length else None


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            # What could not be sent any more is of no interest.
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def _name(status: int) -> str:
    return signal.Signals(-status).name if status < 0 else f"exit status {status}"
