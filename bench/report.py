"""How a measurement is printed: one JSON line with what was measured and where."""

import json
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from cutaway.machine import read_cpu

ROOT = Path(__file__).parent.parent


def report(name: str, unit: str, values: Sequence[float], **facts: object) -> None:
    """Print the median and the extremes of repeated measurements."""
    spread = {
        "median": round(median(values), 4),
        "min": round(min(values), 4),
        "max": round(max(values), 4),
        "runs": len(values),
    }
    _print_line({"name": name, "unit": unit, **spread, **facts})


def report_figure(name: str, value: float, **facts: object) -> None:
    """Print a number without a unit that is the same in every run."""
    _print_line({"name": name, "value": round(value, 4), **facts})


def _print_line(facts: Mapping[str, object]) -> None:
    cpu = read_cpu()
    where = {
        "processor": cpu.model,
        "cores": cpu.num_usable_cores,
        "python": platform.python_version(),
        "commit": _commit(),
    }
    print(json.dumps({**facts, **where}), flush=True)


def _commit() -> str:
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"
