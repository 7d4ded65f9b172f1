"""From the shell to the first output: commands that need no model, the first token of an answer, a ready server."""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.report import report
from cutaway.config import DEFAULT_MODEL, load_settings
from cutaway.hub.resolve import ensure
from cutaway.hub.store import ModelStore

RUNS = 7
COMMAND = str(Path(sys.executable).parent / "cutaway")
QUESTION = "Is a tomato a fruit?"
COMMANDS: dict[str, list[str]] = {
    "cutaway --help": ["--help"],
    "cutaway models": ["models"],
    "cutaway tokenize": ["tokenize", QUESTION],
}


def seconds_to_end(arguments: Sequence[str]) -> float:
    """Wall time of a whole command."""
    begin = time.perf_counter()
    subprocess.run([COMMAND, *arguments], check=True, capture_output=True)
    return time.perf_counter() - begin


def seconds_to_first_byte(arguments: Sequence[str]) -> float:
    """Wall time until a command prints something to standard output."""
    begin = time.perf_counter()
    with subprocess.Popen([COMMAND, *arguments], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        first = time.perf_counter() - begin
        process.stdout.read()
    return first


def seconds_to_ready(arguments: Sequence[str]) -> float:
    """Wall time until a server says that it is ready, which it does when it takes requests."""
    begin = time.perf_counter()
    with subprocess.Popen([COMMAND, "serve", "--port", "0", *arguments], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = next((line for line in process.stderr if line.startswith("serving ")), None)
        ready = time.perf_counter() - begin
        process.terminate()
    if said is None:
        raise SystemExit("the server did not start")
    return ready


def main() -> None:
    """Measure, after one run of each to warm the file cache."""
    settings = load_settings()
    ensure(DEFAULT_MODEL, ModelStore(settings.cache_dir, settings.index_url))
    for name, arguments in COMMANDS.items():
        report(name, "s", [seconds_to_end(arguments) for _ in range(RUNS + 1)][1:])
    ask = ["ask", QUESTION, "--max-tokens", "4"]
    report("shell to first token", "s", [seconds_to_first_byte(ask) for _ in range(RUNS + 1)][1:], model=DEFAULT_MODEL)
    report("shell to ready server", "s", [seconds_to_ready([]) for _ in range(RUNS + 1)][1:], model=DEFAULT_MODEL)


if __name__ == "__main__":
    main()
