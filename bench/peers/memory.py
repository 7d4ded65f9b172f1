"""How much memory a process and its children have held at most."""

import re
from pathlib import Path

PROC = Path("/proc")


def peak_bytes(process_id: int, proc: Path = PROC) -> int | None:
    """Sum of the peaks of resident memory of a process and all its descendants; ``None`` where ``/proc`` has none.

    Pages that several of them share count once for each; the peaks need not have been at one time.
    """
    parents = {int(path.parent.name): _parent(path) for path in proc.glob("[0-9]*/stat")}
    family = {process_id}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    peaks = [_peak(proc / str(member) / "status") for member in family]
    return sum(peaks) or None


def _parent(path: Path) -> int | None:
    try:
        return int(path.read_text().rpartition(")")[2].split()[1])  # a name in brackets may hold spaces
    except (OSError, IndexError):  # it has ended
        return None


def _peak(path: Path) -> int:
    try:
        match = re.search(r"^VmHWM:\s+(\d+) kB", path.read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(match[1]) * 1024 if match else 0
