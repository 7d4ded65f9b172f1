"""What is measured, whoever it is: an engine with a model, and what is known of the place it runs in."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.peers.workload import Workload
from cutaway.machine import Cpu


@dataclass(frozen=True, slots=True)
class Place:
    """Where engines run.

    Attributes:
        model: the GGUF file.
        folder: for what peers need and leave behind.
        num_threads: of arithmetic.
        cpu: the processor.
    """

    model: Path
    folder: Path
    num_threads: int
    cpu: Cpu


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds from the start of a process to its first token, and the most memory it held in ``MEMORY_LOAD``."""

    seconds: float
    peak_bytes: int | None


class Engine(Protocol):
    """One engine with one model, in a process that is not this one. It computes only while it is asked.

    Every method raises ``PeerMissing`` when its process ends before it should.
    """

    name: str
    facts: Mapping[str, str]

    def start(self) -> Start:
        """Start a fresh process for this alone, and end it."""
        ...

    def warm(self, workload: Workload) -> None:
        """Do what is done only the first time that such work comes, if anything is."""
        ...

    def measure(self, workload: Workload) -> float:
        """Tokens a second."""
        ...

    def close(self) -> None:
        """End what runs."""
        ...
