import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from bench.peers.engine import Start
from bench.peers.engines import OWN
from bench.peers.install import PeerMissing, llama_cpp_flags
from bench.peers.llama_cpp import parse_batched, parse_bench
from bench.peers.memory import peak_bytes
from bench.peers.page import write_page
from bench.peers.perplexity import parse_perplexity
from bench.peers.resident import ResidentEngine
from bench.peers.results import Recorder, read_results
from bench.peers.rounds import Rounds
from bench.peers.tool import run_tool
from bench.peers.workload import Workload, make_prompts, time_answers
from cutaway.machine import Cpu

# What the tools printed, and the lines of two short runs joined, all on a busy machine: their speeds mean nothing.
BENCH = Path(__file__).parent / "peer_outputs"
RATE = 20_000  # tokens a second, of the engine below

# An engine that prints what is no answer, takes a known time, and ends when it is asked for 13 requests.
FAKE_ENGINE = f"""
import os, sys
from bench.peers.wire import serve
from bench.peers.workload import Phases

def run(workload, seed):
    print("engines talk")
    os.system("echo and their children")
    if workload.num_requests == 13:
        sys.exit(3)
    return Phases(workload.num_prompt / {RATE}, 0.5, 40)

serve(lambda: run)
"""


class CountingEngine:
    """Is always faster than the time before; ``num_left`` measurements later it is gone."""

    def __init__(self, name: str, order: list[str], num_left: int = 1_000) -> None:
        self.name = name
        self.facts: Mapping[str, str] = {"version": "1", "weights": "none"}
        self._order, self._num_left, self._rate = order, num_left, 0
        self.closed = False

    def start(self) -> Start:
        return Start(2.0, 5_000_000)

    def warm(self, workload: Workload) -> None:
        self._order.append(f"warm {self.name}")

    def measure(self, workload: Workload) -> float:
        if not self._num_left:
            raise PeerMissing(f"{self.name} ended with 1")
        self._num_left -= 1
        self._rate += 1
        self._order.append(self.name)
        return self._rate

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    recorder = Recorder(tmp_path / "results.jsonl")
    recorder.write(json.loads((BENCH / "benchmarks.jsonl").read_text(encoding="utf-8").splitlines()[0]))
    yield recorder
    recorder.close()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[ResidentEngine]:
    command = [sys.executable, "-c", FAKE_ENGINE]
    engine = ResidentEngine("fake", {}, command, {}, tmp_path / "log.txt")
    yield engine
    engine.close()


def test_rates_are_read_from_what_the_tools_print() -> None:
    assert parse_bench((BENCH / "llama-bench.jsonl").read_text()) == 4.37571
    batched = (BENCH / "llama-batched-bench.jsonl").read_text()
    assert parse_batched(batched, "prefill") == 11.915647
    assert parse_batched(batched, "decode") == 0.885652
    assert parse_perplexity((BENCH / "llama-perplexity.txt").read_text()) == 15.108


def test_output_that_says_no_rate_or_two_is_refused() -> None:
    line = (BENCH / "llama-bench.jsonl").read_text()
    with pytest.raises(PeerMissing, match="0 lines"):
        parse_bench("error: failed to load model\n")
    with pytest.raises(PeerMissing, match="2 lines"):
        parse_bench(line + line)
    with pytest.raises(PeerMissing, match="no final estimate"):
        parse_perplexity("Final estimate: PPL = nan")


def test_processors_with_tile_registers_get_a_build_without_them() -> None:
    def flags(*features: str) -> tuple[str, ...]:
        return llama_cpp_flags(Cpu("", "x86_64", features, 2, 2, 2))

    assert "-DGGML_NATIVE=OFF" in flags("avx2", "amx_tile")
    assert not any("AMX" in flag for flag in flags("avx2", "amx_tile"))
    assert "-DGGML_NATIVE=ON" in flags("avx2")


def test_only_steps_in_which_everybody_goes_on_count_as_decoding() -> None:
    # Two requests of three tokens: b starts one step later, and ends alone.
    steps = iter([["a"], ["a", "b"], ["a", "b"], ["b"]])
    phases = time_answers(lambda: next(steps), ["a", "b"], num_generated=3)
    assert phases.num_decoded == 2
    assert phases.prefill_s > 0
    assert next(steps, None) is None


def test_prompts_are_fresh_unless_the_seed_is_the_same() -> None:
    workload = Workload(num_prompt=16, num_generated=1, num_requests=3)
    prompts = make_prompts(workload, 1)
    assert prompts == make_prompts(workload, 1)
    assert len({tuple(prompt) for prompt in (*prompts, *make_prompts(workload, 2))}) == 6


def test_what_an_engine_prints_does_not_disturb_its_answers(engine: ResidentEngine) -> None:
    assert engine.measure(Workload(num_prompt=100, num_generated=1)) == pytest.approx(RATE)
    assert engine.measure(Workload(num_prompt=100, num_generated=8)) == pytest.approx(80)


def test_an_engine_that_ends_is_missing_and_says_where_its_messages_are(engine: ResidentEngine) -> None:
    with pytest.raises(PeerMissing, match=r"fake ended with 3\n.*log\.txt"):
        engine.measure(Workload(8, 8, num_requests=13))


@pytest.mark.skipif(sys.platform != "linux", reason="peaks are read from /proc")
def test_a_start_tells_its_time_and_the_memory_of_the_process_and_its_children(engine: ResidentEngine) -> None:
    start = engine.start()
    assert start.seconds > 0
    assert start.peak_bytes is not None
    assert start.peak_bytes > 1e6


def test_memory_is_that_of_a_process_and_its_descendants(tmp_path: Path) -> None:
    for process_id, parent, name, peak in (
        (10, 1, "a", 5),
        (11, 10, "b c) (d", 7),
        (12, 11, "e", 11),
        (13, 1, "f", 99),
    ):
        folder = tmp_path / str(process_id)
        folder.mkdir()
        (folder / "stat").write_text(f"{process_id} ({name}) S {parent} 0 0")
        (folder / "status").write_text(f"Name:\tx\nVmHWM:\t     {peak} kB\n")
    assert peak_bytes(10, tmp_path) == (5 + 7 + 11) * 1024
    assert peak_bytes(99, tmp_path) is None


def test_a_tool_that_fails_says_its_last_words() -> None:
    with pytest.raises(PeerMissing, match="ended with 4: no such model"):
        run_tool([sys.executable, "-c", "import sys; print('no such model', file=sys.stderr); sys.exit(4)"])
    with pytest.raises(PeerMissing, match="does not start"):
        run_tool(["/no/such/program"])
    assert run_tool([sys.executable, "-c", "print('yes')"]).output == "yes\n"


def test_engines_take_turns_and_another_is_first_each_time(recorder: Recorder, tmp_path: Path) -> None:
    order: list[str] = []
    Rounds([CountingEngine("a", order), CountingEngine("b", order)], "m", 2, recorder).measure([Workload(8, 8)], 3)
    assert order == ["warm a", "warm b", "a", "b", "b", "a", "a", "b"]
    results = read_results(tmp_path / "results.jsonl")
    assert results.median(engine="a", name="decode") == 2
    assert [line["runs"] for line in results.lines] == [3, 3]


def test_an_engine_that_is_lost_is_recorded_and_the_others_go_on(recorder: Recorder, tmp_path: Path) -> None:
    order: list[str] = []
    lost, kept = CountingEngine("a", order, num_left=1), CountingEngine("b", order)
    rounds = Rounds([lost, kept], "m", 2, recorder)
    rounds.measure([Workload(8, 8), Workload(9, 1)], 2)
    rounds.start(2)
    assert lost.closed
    results = read_results(tmp_path / "results.jsonl")
    assert [(line["engine"], line["reason"]) for line in results.missing] == [("a", "a ended with 1")]
    assert results.median(name="decode", engine="a") == 1  # what it did before stays
    assert results.median(name="prefill", engine="a") is None
    assert results.median(name="peak memory", engine="b") == 5


def test_a_page_shows_every_figure_of_a_recorded_run(tmp_path: Path) -> None:
    results = read_results(BENCH / "benchmarks.jsonl")
    pages = write_page(results, tmp_path)
    texts = [page.read_text(encoding="utf-8") for page in pages]
    assert [page.name for page in pages] == ["benchmarks.md", "benchmarks.ko.md"]
    for text in texts:
        assert str(results.run["date"]) in text
        assert str(results.run["command"]) in text
        for engine in results.engines:
            assert f"| {engine} |" in text
        for path in (tmp_path / "images").iterdir():
            assert f"(images/{path.name})" in text
    rows = [[line for line in text.splitlines() if line.startswith("|")] for text in texts]
    assert len(rows[0]) == len(rows[1])
    assert {path.name for path in (tmp_path / "images").iterdir()} == {
        f"benchmark-{part}.svg" for part in ("decode", "prefill", "context", "start", "memory")
    }


def test_a_page_of_the_same_run_is_the_same_to_the_byte(tmp_path: Path) -> None:
    results = read_results(BENCH / "benchmarks.jsonl")
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
        write_page(results, folder)
    for path in folders[0].rglob("*.*"):
        assert path.read_bytes() == (folders[1] / path.relative_to(folders[0])).read_bytes()


def test_a_page_compares_own_engines_with_the_best_peer(recorder: Recorder, tmp_path: Path) -> None:
    own = next(iter(OWN))
    sizes = {"model": "m", "threads": 2, "version": "1", "weights": "Q4_1", "prompt": 128, "requests": 4}
    for engine, rate in ((own, 300.0), ("slow peer", 50.0), ("fast peer", 120.0)):
        recorder.measured("decode", "tokens/s", [rate], {"engine": engine, **sizes})
    recorder.missing("no peer", "m", "could not\nbe built")
    page = write_page(read_results(tmp_path / "results.jsonl"), tmp_path)[0].read_text(encoding="utf-8")
    assert "| 4 | 300 | 50.0 | 120 | 2.50 × |" in page
    assert "- no peer (m): could not be built" in page
