"""A model made ready for one command: found or fetched, its text side and its engine loaded."""

import time
from dataclasses import dataclass

from cutaway.cli.interrupts import interrupts_held
from cutaway.cli.model import find_model
from cutaway.cli.torch_import import importing_torch
from cutaway.engine.client import EngineClient
from cutaway.engine.options import EngineOptions
from cutaway.text.load import load_text
from cutaway.weights.checkpoint import open_checkpoint


@dataclass(frozen=True, slots=True)
class Session:
    """An engine that is ready, and how long that took (without a download).

    A context manager: leaving it stops the engine, which a process must do before it exits.
    """

    engine: EngineClient
    load_ns: int

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        with interrupts_held():
            self.engine.close()


def open_session(reference: str, options: EngineOptions) -> Session:
    """Load a model and start an engine around it.

    Raises:
        CutawayError: the model cannot be found, fetched, read, or does not fit into memory.
    """
    files = find_model(reference)
    begin_ns = time.perf_counter_ns()
    checkpoint = open_checkpoint(files.path)
    tokenizer, template = load_text(checkpoint)
    # Imported here, after everything that can fail without it: torch takes longer to import than a model to load.
    with importing_torch():
        from cutaway.engine.load import load_core
    from cutaway.engine.local import LocalEngine
    from cutaway.engine.prepare import Preparer

    core = load_core(checkpoint, files.name, tokenizer, options)
    preparer = Preparer(tokenizer, template, core.scheduler.limits.max_length, core.clock)
    return Session(LocalEngine(core, preparer), time.perf_counter_ns() - begin_ns)
