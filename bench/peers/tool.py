"""A program that is run to its end and watched meanwhile."""

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.peers.install import PeerMissing
from bench.peers.memory import peak_bytes

MAX_LOG_LINES = 5


@dataclass(frozen=True, slots=True)
class Finished:
    """What a program printed, on standard output and as messages, how long it ran, and the most memory it held."""

    output: str
    messages: str
    seconds: float
    peak_bytes: int | None


def run_tool(command: Sequence[str], poll_s: float | None = None) -> Finished:
    """Run a program.

    Args:
        command: its path and arguments.
        poll_s: how often its memory is looked at, which takes time away from what it does; ``None`` for never.

    Raises:
        PeerMissing: it does not start, or fails.
    """
    begin = time.perf_counter()
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    except OSError as error:
        raise PeerMissing(f"{command[0]} does not start: {error}") from None
    peak: int | None = None
    while True:
        # What wait4 reports would count the memory of this process as well, from before the program took over.
        if poll_s is not None:
            peak = peak_bytes(process.pid) or peak
        try:
            output, messages = process.communicate(timeout=poll_s)
        except subprocess.TimeoutExpired:
            continue
        break
    seconds = time.perf_counter() - begin
    if process.returncode:
        tail = "\n".join((messages + output).strip().splitlines()[-MAX_LOG_LINES:])
        raise PeerMissing(f"{' '.join(command)} ended with {process.returncode}: {tail}")
    return Finished(output, messages, seconds, peak)
