"""Standard input, output and error of the process, made safe to use whatever they lead to.

Owns what happens when one of them is closed, full or of another encoding. Refuses to know what is written.
Invariants: none of ``sys.stdin``, ``sys.stdout`` and ``sys.stderr`` is ``None`` afterwards; a failed write is an
``OutputLost`` that names the stream, but for a reader that has left, which click ends quietly.
"""

import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

from cutaway.errors import CutawayError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STDIN, STDOUT, STDERR = 0, 1, 2
_NAMES = {STDOUT: "standard output", STDERR: "standard error"}


class OutputLost(Exception):
    """What was printed cannot be written. Not a ``CutawayError``: no command can go on after it."""


class _Output(io.FileIO):
    """A descriptor whose failures say which stream failed."""

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputLost(f"{_NAMES[self.fileno()]} cannot be written: {error.strerror}") from None


def open_streams() -> None:
    """Prepare the three streams: a closed input is an empty one, and messages to a closed standard error are lost.

    Raises:
        CutawayError: standard output is closed, so that no result could be given.
    """
    is_closed = sys.stdout is None
    # In this order each takes the lowest free descriptor, its own, which no file of a model can get then.
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115 - stays open as long as the process
    sys.stdout = _output(sys.stdout, STDOUT)
    sys.stderr = _output(sys.stderr, STDERR)
    if is_closed:
        raise CutawayError("standard output is closed", hint="to have no output, send it to /dev/null")


def abandon_output() -> None:
    """Let what could not be written go nowhere, so that the interpreter does not stumble over it when it exits."""
    for descriptor, stream in ((STDOUT, sys.stdout), (STDERR, sys.stderr)):
        try:
            stream.flush()
        except (OutputLost, OSError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, descriptor)
            os.close(null)


def _output(stream: TextIO | None, descriptor: int) -> TextIO:
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")
    # A character that the encoding lacks, or a file name in no encoding at all, is spelled out.
    raw = _Output(descriptor, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=stream.encoding, errors="backslashreplace", line_buffering=True
    )
