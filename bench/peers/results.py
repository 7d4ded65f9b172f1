"""Where measurements go: JSON lines on standard output and in a file, and back from the file."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.report import describe

Line = Mapping[str, object]


class Recorder:
    """Writes each line at once, so that a run that is cut short keeps what it has.

    Args:
        path: of the file; what it held is gone.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8")

    def write(self, line: Line) -> None:
        """Print a line and keep it."""
        text = json.dumps(line, ensure_ascii=False)
        print(text, flush=True)
        print(text, file=self._file, flush=True)

    def measured(self, name: str, unit: str, values: Sequence[float], facts: Line) -> None:
        """Write what was measured repeatedly, if it was."""
        if values:
            self.write(describe(name, unit, values, **facts))

    def missing(self, engine: str, model: str, reason: str) -> None:
        """Write that an engine is left out from here on, and why."""
        self.write({"name": "missing", "engine": engine, "model": model, "reason": reason})

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@dataclass(frozen=True, slots=True)
class Results:
    """What a file of results says.

    Attributes:
        run: date, command, machine.
        lines: measurements.
        missing: engines that were left out.
    """

    run: Line
    lines: tuple[Line, ...]
    missing: tuple[Line, ...]

    @property
    def engines(self) -> tuple[str, ...]:
        """Those that have measurements, in the order of the file."""
        return tuple(dict.fromkeys(str(line["engine"]) for line in self.lines))

    @property
    def models(self) -> tuple[str, ...]:
        """Those that have measurements, in the order of the file."""
        return tuple(dict.fromkeys(str(line["model"]) for line in self.lines))

    def median(self, **facts: object) -> float | None:
        """The median of the one measurement with these facts."""
        for line in self.lines:
            if all(line.get(key) == value for key, value in facts.items()):
                return float(str(line["median"]))
        return None


def read_results(path: Path) -> Results:
    """Read what a ``Recorder`` wrote."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    run = next(line for line in lines if line["name"] == "run")
    missing = tuple(line for line in lines if line["name"] == "missing")
    return Results(run, tuple(line for line in lines if "median" in line), missing)
