"""A model made ready for one command: found or fetched, its text side and its engine loaded."""

import time
from dataclasses import dataclass
from functools import partial

from cutaway.cli.model import find_model
from cutaway.cli.output import tell
from cutaway.engine.client import EngineClient
from cutaway.engine.core import EngineCore
from cutaway.engine.engine import Engine
from cutaway.engine.imports import importing_numpy
from cutaway.engine.interrupts import interrupts_held
from cutaway.engine.options import EngineOptions
from cutaway.engine.prepare import Preparer
from cutaway.engine.process import ProcessWorker
from cutaway.engine.worker import ThreadWorker, Worker
from cutaway.glass.receipt import ModelFacts
from cutaway.hub.files import ModelFiles
from cutaway.text.load import load_text
from cutaway.text.tokenizer import Tokenizer
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
    tokenizer, template = load_text(open_checkpoint(files.path))
    # After everything that can fail without a model: that takes longest.
    worker = open_worker(files, options, tokenizer)
    _tell_limits(worker.model, options)
    preparer = Preparer(tokenizer, template, worker.model.context_length, time.perf_counter_ns)
    return Session(Engine(worker, preparer), time.perf_counter_ns() - begin_ns)


def _tell_limits(model: ModelFacts, options: EngineOptions) -> None:
    """Say what is less than one would expect, unless it was asked for."""
    if options.kernels == "auto" and options.dtype == "auto" and model.why_reference is not None:
        tell(f"note: {model.why_reference}; those of torch, many times slower, do it instead")
    if options.context is None and model.context_length < model.trained_context:
        tell(
            f"note: there is cache for a context of {model.context_length:,} tokens, the model was trained for "
            f"{model.trained_context:,}; --kv-memory gives it more"
        )


def open_worker(files: ModelFiles, options: EngineOptions, tokenizer: Tokenizer) -> Worker:
    """Load a model into whatever runs its engine; it has not started yet. Raises as ``open_session``."""
    if options.worker == "thread":
        return ThreadWorker(_load(files, options, tokenizer))
    worker = ProcessWorker(partial(_load_in_process, files, options))
    worker.wait()
    return worker


def _load_in_process(files: ModelFiles, options: EngineOptions) -> EngineCore:
    return _load(files, options, load_text(open_checkpoint(files.path))[0])


def _load(files: ModelFiles, options: EngineOptions, tokenizer: Tokenizer) -> EngineCore:
    with importing_numpy():
        from cutaway.engine.load import load_core

    return load_core(open_checkpoint(files.path), files.name, tokenizer, options)
