"""How a measurement is printed: one JSON line with what was measured, where, and the spread."""

import json
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from cutaway.machine import read_cpu

ROOT = Path(__file__).parent.parent


def report(name: str, unit: str, values: Sequence[float], **facts: object) -> None:
    """Print the median and the extremes of repeated measurements."""
    print(json.dumps(describe(name, unit, values, **facts)), flush=True)


def report_figure(name: str, value: float, **facts: object) -> None:
    """Print a figure that does not change from run to run."""
    print(json.dumps({"name": name, "value": round(value, 4), **facts, **_where()}), flush=True)


def describe(name: str, unit: str, values: Sequence[float], **facts: object) -> dict[str, object]:
    """What ``report`` prints."""
    spread = {
        "median": round(median(values), 4),
        "min": round(min(values), 4),
        "max": round(max(values), 4),
        "runs": len(values),
    }
    return {"name": name, "unit": unit, **spread, **facts, **_where()}


def _where() -> dict[str, object]:
    cpu = read_cpu()
    return {
        "processor": cpu.model,
        "cores": cpu.num_usable_cores,
        "python": platform.python_version(),
        "commit": _commit(),
    }


def _commit() -> str:
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"
