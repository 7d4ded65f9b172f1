"""An engine whose process stays: it is started once and given work in turns."""

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO

from bench.peers.engine import Start
from bench.peers.install import PeerMissing
from bench.peers.memory import peak_bytes
from bench.peers.workload import FIRST_ANSWER, MEMORY_LOAD, Phases, Workload

ROOT = Path(__file__).parent.parent.parent
SETTLE_S = 0.3  # threads of a peer may go on spinning for a moment after their work


class Worker:
    """A process that answers work on its standard input; see ``wire.serve``.

    Args:
        name: of the engine, for messages.
        command: starts it.
        settings: for its environment.
        log: where its messages go.

    Raises:
        PeerMissing: it cannot be started.
    """

    def __init__(self, name: str, command: Sequence[str], settings: Mapping[str, str], log: IO[str]) -> None:
        self.name = name
        self._log = log
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **settings}
        try:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT, env=environment
            )
        except OSError as error:
            raise PeerMissing(f"{name} does not start: {error}") from None

    def run(self, workload: Workload, seed: int) -> Phases:
        """Let it work, and wait until its threads are quiet.

        Raises:
            PeerMissing: it has ended.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):  # it has ended: there is no answer either
            self.process.stdin.write(json.dumps({"workload": asdict(workload), "seed": seed}) + "\n")
            self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise PeerMissing(f"{self.name} ended with {self.process.wait()}", hint=f"see {self._log.name}")
        time.sleep(SETTLE_S)
        return Phases(**json.loads(line))

    def close(self) -> None:
        """End it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):  # it ended by itself, with work unread
            self.process.stdin.close()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        finally:
            self.process.stdout.close()


class ResidentEngine:
    """Implements ``Engine`` with a process that stays.

    Args:
        name: of the engine.
        facts: what to say beside each of its figures.
        command: starts a process.
        settings: for its environment.
        log_path: where its messages go.
    """

    def __init__(
        self,
        name: str,
        facts: Mapping[str, str],
        command: Sequence[str],
        settings: Mapping[str, str],
        log_path: Path,
    ) -> None:
        self.name = name
        self.facts = facts
        self._command, self._settings = command, settings
        self._log = log_path.open("w")
        self._worker: Worker | None = None
        self._seed = 0

    def start(self) -> Start:
        """Start a process for this alone, and end it; raises as ``Worker.run``."""
        begin = time.perf_counter()
        worker = self._new_worker()
        try:
            phases = worker.run(FIRST_ANSWER, self._next_seed())
            assert phases.prefill_s > 0
            seconds = time.perf_counter() - begin - SETTLE_S
            worker.run(MEMORY_LOAD, self._next_seed())
            return Start(seconds, peak_bytes(worker.process.pid))
        finally:
            worker.close()

    def warm(self, workload: Workload) -> None:
        """What it does the first time for such work, it does now; raises as ``Worker.run``."""
        self.measure(workload)

    def measure(self, workload: Workload) -> float:
        """Tokens a second; raises as ``Worker.run``."""
        if self._worker is None:
            self._worker = self._new_worker()
        return self._worker.run(workload, self._next_seed()).rate(workload)

    def close(self) -> None:
        """End its process."""
        if self._worker is not None:
            self._worker.close()
        self._log.close()

    def _new_worker(self) -> Worker:
        return Worker(self.name, self._command, self._settings, self._log)

    def _next_seed(self) -> int:
        self._seed += 1
        return self._seed
