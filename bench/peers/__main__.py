"""Cutaway and its peers side by side on this machine: the same weights, prompts and threads, in alternating rounds.

Prints JSON lines, and writes them with a page of tables and plots. Peers that are missing are installed first.
"""

import argparse
import platform
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from bench.peers.engine import Engine, Place
from bench.peers.engines import ENGINES, OWN, open_engine
from bench.peers.install import say
from bench.peers.page import write_page
from bench.peers.results import Recorder, read_results
from bench.peers.rounds import Rounds
from bench.peers.workload import Workload
from cutaway.config import DEFAULT_MODEL, load_settings
from cutaway.errors import CutawayError
from cutaway.hub.resolve import ensure
from cutaway.hub.store import ModelStore
from cutaway.machine import read_cpu, read_memory

FULL_RUN = "docs"
QUICK_RUN = "build/benchmarks"
OTHER_MODELS = ("qwen2.5-coder-0.5b-instruct", "gemma-3-270m")
ON_OTHER_MODELS = (*OWN, "llama.cpp")
PARTS = ("decode", "prefill", "context", "start")
NUM_GENERATED = 64


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured: rounds, starts, and sizes of each part."""

    num_rounds: int
    num_starts: int
    batch_sizes: tuple[int, ...]
    prompts: tuple[int, ...]
    contexts: tuple[int, ...]

    def workloads(self, parts: Sequence[str]) -> list[Workload]:
        """Those of some parts, each once."""
        sizes = {
            "decode": [Workload(128, NUM_GENERATED, size) for size in self.batch_sizes],
            "prefill": [Workload(size, 1) for size in self.prompts],
            "context": [Workload(size, NUM_GENERATED) for size in self.contexts],
        }
        return list(dict.fromkeys(workload for part in parts for workload in sizes.get(part, [])))


FULL = Effort(5, 3, (1, 2, 4, 8, 16, 32, 64), (32, 128, 512, 2048, 4096), (128, 1024, 4096))
QUICK = Effort(2, 1, (1, 8), (128, 512), (128, 1024))
SMALL = (Workload(128, NUM_GENERATED), Workload(512, 1))


def main() -> None:
    """Measure, and write the page."""
    arguments = parse_arguments()
    effort = QUICK if arguments.quick else FULL
    num_rounds = arguments.rounds or effort.num_rounds
    output = arguments.output or Path(QUICK_RUN if arguments.quick else FULL_RUN)
    results = output / "benchmarks.jsonl"
    with closing(Recorder(results)) as recorder:
        recorder.write(describe_run())
        for model in arguments.models:
            engines = open_engines(arguments.engines, model, arguments.threads, recorder)
            with closing(Rounds(engines, model, arguments.threads, recorder)) as rounds:
                if model == DEFAULT_MODEL and "start" in arguments.parts:  # first: nothing else is in memory
                    rounds.start(effort.num_starts)
                rounds.measure(effort.workloads(arguments.parts) if model == DEFAULT_MODEL else SMALL, num_rounds)
    for page in write_page(read_results(results), output):
        say(f"wrote {page}")


def parse_arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few minutes: fewer sizes, two rounds, one start")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES), metavar="NAME")
    parser.add_argument("--models", nargs="+", default=[DEFAULT_MODEL, *OTHER_MODELS], metavar="MODEL")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--rounds", type=int, help=f"{FULL.num_rounds} by default, {QUICK.num_rounds} with --quick")
    parser.add_argument("--threads", type=int, default=read_cpu().num_usable_cores)
    parser.add_argument("--output", type=Path, help=f"folder; {FULL_RUN} by default, {QUICK_RUN} with --quick")
    return parser.parse_args()


def open_engines(names: Sequence[str], model: str, num_threads: int, recorder: Recorder) -> list[Engine]:
    """Those that can be had for a model; what cannot is recorded."""
    settings = load_settings()
    path = ensure(model, ModelStore(settings.cache_dir, settings.index_url)).path
    place = Place(path, settings.cache_dir / "peers", num_threads, read_cpu())
    engines = []
    for name in names:
        if model == DEFAULT_MODEL or name in ON_OTHER_MODELS:
            try:
                engines.append(open_engine(name, place))
            except CutawayError as error:
                recorder.missing(name, model, str(error))
    return engines


def describe_run() -> dict[str, object]:
    """Date, command and machine."""
    cpu = read_cpu()
    return {
        "name": "run",
        "date": time.strftime("%Y-%m-%d"),
        "command": shlex.join(["python", "-m", "bench.peers", *sys.argv[1:]]),
        "processor": cpu.model,
        "features": " ".join(cpu.features),
        "cores": cpu.num_usable_cores,
        "memory_gb": round(read_memory().total_bytes / 1e9),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


if __name__ == "__main__":
    main()
