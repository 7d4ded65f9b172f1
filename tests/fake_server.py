"""A server around an engine without a model, as a program: ``fake_server.py FOLDER [impatient]``.

Files in the folder tell the engine how to behave from its next step on: ``slow`` lets each step take a tenth of a
second, ``break`` makes each step fail, ``bug`` makes the spelling of tokens raise what nobody expects. An impatient
server waits ``IMPATIENT_SECONDS`` for headers and for bodies, which together may have ``FEW_BYTES``.
"""

import socket
import sys
import time
from dataclasses import replace
from pathlib import Path

from fake_engine import LIMITS, VOCAB_SIZE, make_core, make_preparer

from cutaway.api.address import open_socket, url_of
from cutaway.api.app import build_app
from cutaway.api.body_guard import BODY_LIMITS, BodyLimits
from cutaway.api.connection import Connection
from cutaway.api.host_names import allowed_hosts
from cutaway.api.server import Server
from cutaway.engine.engine import Engine
from cutaway.engine.worker import ThreadWorker
from cutaway.executor.fake import FakeRunner
from cutaway.glass.receipt import Spelling
from cutaway.scheduler.plan import StepPlan, StepResult

STEP_SECONDS = 0.1
MAX_RUNNING, MAX_WAITING = 4, 4
IMPATIENT_SECONDS = 0.5
FEW_BYTES = 100_000
OTHER_NAME = "pc.example"


class ImpatientConnection(Connection):
    """Does not wait long for headers."""

    head_seconds = IMPATIENT_SECONDS


class ToldRunner:
    """A fake runner that looks into a folder before each step."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.inner = FakeRunner(LIMITS.block_size, VOCAB_SIZE)

    def execute(self, plan: StepPlan) -> StepResult:
        if (self.folder / "break").exists():
            raise RuntimeError("broken on purpose")
        if (self.folder / "slow").exists():
            time.sleep(STEP_SECONDS)
        return self.inner.execute(plan)


class ToldEngine(Engine):
    """An engine that looks into a folder before it spells a token."""

    folder: Path

    def spelling(self, token_id: int) -> Spelling:
        if (self.folder / "bug").exists():
            raise KeyError("a secret")
        return super().spelling(token_id)


def main() -> int:
    """Serve until told to stop."""
    limits = replace(LIMITS, max_running=MAX_RUNNING, max_waiting=MAX_WAITING)
    folder = Path(sys.argv[1])
    engine = ToldEngine(ThreadWorker(make_core(ToldRunner(folder), limits)), make_preparer())
    engine.folder = folder
    impatient = "impatient" in sys.argv
    bodies = BodyLimits(IMPATIENT_SECONDS, FEW_BYTES) if impatient else BODY_LIMITS
    with open_socket("127.0.0.1", 0) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # so that a client can be too slow
        app = build_app(engine, hosts=allowed_hosts("127.0.0.1", "127.0.0.1", True, [OTHER_NAME]), bodies=bodies)
        connection = ImpatientConnection if impatient else Connection
        server = Server(app, lambda line: print(line, file=sys.stderr, flush=True), engine.close, connection)
        finished = server.run_on(bound, f"serving {engine.model.name} at {url_of(bound)}")
    engine.close()
    return 0 if finished else 130


if __name__ == "__main__":
    sys.exit(main())
