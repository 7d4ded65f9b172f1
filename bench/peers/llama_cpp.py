"""llama.cpp by its own tools, started anew for each measurement: they load in under a second and warm up themselves."""

import json
from collections.abc import Mapping
from pathlib import Path

from bench.peers.engine import Start
from bench.peers.install import PeerMissing
from bench.peers.tool import run_tool
from bench.peers.workload import FIRST_ANSWER, MEMORY_LOAD, Workload

POLL_S = 0.1


class LlamaCpp:
    """Implements ``Engine``.

    Args:
        tools: folder of the programs.
        model: GGUF file.
        num_threads: for prompts and for answers.
        version: to be said beside the figures.
        quantization: of the file.
    """

    name = "llama.cpp"

    def __init__(self, tools: Path, model: Path, num_threads: int, version: str, quantization: str) -> None:
        self.facts: Mapping[str, str] = {"version": version, "weights": quantization}
        self._tools, self._model, self._num_threads = tools, model, num_threads

    def start(self) -> Start:
        """Load and read a short prompt; the memory is that of a run of its own."""
        seconds = run_tool(self._bench(FIRST_ANSWER, "--no-warmup")).seconds
        return Start(seconds, run_tool(self._batched(MEMORY_LOAD), POLL_S).peak_bytes)

    def warm(self, workload: Workload) -> None:
        """Nothing: each run warms up by itself."""

    def measure(self, workload: Workload) -> float:
        """Tokens a second, as the tools say."""
        if workload.name == "prefill" and workload.num_requests == 1:
            return parse_bench(run_tool(self._bench(workload)).output)
        return parse_batched(run_tool(self._batched(workload)).output, workload.name)

    def close(self) -> None:
        """Nothing runs."""

    def _bench(self, workload: Workload, *options: str) -> list[str]:
        sizes = ["-p", str(workload.num_prompt), "-n", "0", "-r", "1", "-o", "jsonl"]
        return [*self._command("llama-bench"), *sizes, *options]

    def _batched(self, workload: Workload) -> list[str]:
        context = workload.num_requests * (workload.num_prompt + workload.num_generated)
        sizes = {
            "-c": context,
            "-npp": workload.num_prompt,
            "-ntg": workload.num_generated,
            "-npl": workload.num_requests,
        }
        options = [word for key, value in sizes.items() for word in (key, str(value))]
        return [*self._command("llama-batched-bench"), *options, "--output-format", "jsonl"]

    def _command(self, program: str) -> list[str]:
        return [str(self._tools / program), "-m", str(self._model), "-t", str(self._num_threads)]


def parse_bench(output: str) -> float:
    """Tokens a second from what ``llama-bench -o jsonl`` prints for one test."""
    return float(_only_line(output, "avg_ts")["avg_ts"])


def parse_batched(output: str, phase: str) -> float:
    """Tokens a second of all requests together from what ``llama-batched-bench --output-format jsonl`` prints.

    Args:
        output: of one combination of sizes.
        phase: ``prefill`` or ``decode``.
    """
    key = {"prefill": "speed_pp", "decode": "speed_tg"}[phase]
    return float(_only_line(output, key)[key])


def _only_line(output: str, key: str) -> dict[str, float]:
    lines: list[dict[str, float]] = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    found = [line for line in lines if key in line]
    if len(found) != 1:
        raise PeerMissing(f"{len(found)} lines of llama.cpp say {key!r} where one should: {output.strip()[-400:]!r}")
    return found[0]
