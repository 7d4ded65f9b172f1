"""Counts the instructions of the native kernels for fixed work, and compares them with those on record.

A count is exact where a time is not: it tells a change of the code from a busy machine. It tells nothing about memory.
callgrind knows no AVX-512, so the sets that it can run stand for the others: the same sources around other loops.
Compilers differ, so there is a record for each version; ``--write`` makes one.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from hatch_build import FLAGS, INSTRUCTION_SETS, SOURCES

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
RECORDS = HERE / "counts.json"
SETS = [name for name in ("portable", "avx2") if name in INSTRUCTION_SETS]
TOLERANCE = 0.03  # of a count, for another version of the C library


def main() -> int:
    """Count and compare; 1 if a kernel takes more instructions than on record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--write", action="store_true", help="take what is counted as the record of this compiler")
    options = parser.parse_args()
    version = _version(options.compiler)
    with TemporaryDirectory() as folder:
        counts = dict(_count_all(_build(options.compiler, Path(folder))))
    records: dict[str, dict[str, int]] = json.loads(RECORDS.read_text(encoding="utf-8"))
    if options.write:
        records[version] = counts
        RECORDS.write_text(json.dumps(records, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    record = records.get(version, {})
    for name, count in counts.items():
        print(json.dumps({"name": name, "instructions": count, "on record": record.get(name), "compiler": version}))
    if not record:
        print(f"there is no record for {version}; --write makes one", file=sys.stderr)
        return 0
    worse = [name for name, count in counts.items() if count > record.get(name, 0) * (1 + TOLERANCE)]
    for name in worse:
        print(f"{name}: {counts[name]:,} instructions, {record.get(name, 0):,} on record", file=sys.stderr)
    return 1 if worse else 0


def _version(compiler: str) -> str:
    done = subprocess.run([compiler, "-dumpfullversion"], check=True, capture_output=True, text=True)
    return f"{Path(compiler).name} {done.stdout.strip().split('.')[0]}"


def _build(compiler: str, folder: Path) -> Path:
    """The program of ``work.cpp`` with the kernels as the package builds them."""
    program = folder / "work"
    objects = []
    for name in SETS:
        objects.append(folder / f"{name}.o")
        flags = [*FLAGS, *INSTRUCTION_SETS[name], f"-DCUTAWAY_ISA={name}"]
        _compile([compiler, *flags, "-c", str(ROOT / SOURCES / "kernels.cpp"), "-o", str(objects[-1])])
    _compile(
        [compiler, *FLAGS, "-I", str(ROOT / SOURCES), str(HERE / "work.cpp"), *map(str, objects), "-o", str(program)]
    )
    return program


def _compile(command: list[str]) -> None:
    subprocess.run(command, check=True)


def _count_all(program: Path) -> Iterator[tuple[str, int]]:
    listed = subprocess.run([program, SETS[0], "list"], check=True, capture_output=True, text=True)
    for instruction_set in SETS:
        for piece in listed.stdout.splitlines():
            yield f"{piece} ({instruction_set})", _count(program, instruction_set, piece)


def _count(program: Path, instruction_set: str, piece: str) -> int:
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=measured"]
    done = subprocess.run([*command, str(program), instruction_set, piece], check=True, capture_output=True, text=True)
    collected = re.search(r"Collected : (\d+)", done.stderr)
    assert collected is not None, done.stderr
    return int(collected[1])


if __name__ == "__main__":
    sys.exit(main())
