"""``cutaway bench offline`` as a user runs it, on the real default model."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import CutawayCommand

SMALL = ["--input-len", "20", "--output-len", "4", "--rounds", "2", "--warmup", "0", "--threads", "2"]


@pytest.fixture(scope="module")
def smollm(real_model: Callable[[str], Path]) -> str:
    return str(real_model("smollm2-135m-instruct"))


@pytest.mark.parametrize("worker", ["thread", "process"])
def test_the_json_object_has_what_it_promises(cutaway_command: CutawayCommand, smollm: str, worker: str) -> None:
    arguments = ("bench", "offline", "-m", smollm, "--json", *SMALL, "--batch", "2", "--worker", worker)
    figures = json.loads(cutaway_command(*arguments, "--dtype", "float32", check=True).stdout)
    assert figures["workload"] == {
        "input_len": 20,
        "output_len": 4,
        "batch": 2,
        "rounds": 2,
        "warmup": 0,
        "seed": 0,
    }
    engine = figures["engine"]
    assert (engine["worker"], engine["dtype"], engine["num_threads"]) == (worker, "float32", 2)
    assert engine["load_ms"] > 0
    # SmolLM2-135M: 134.5 million weights in matrices, 4 bytes each here; 30 layers with 3 heads of 64 in the cache.
    assert figures["work"]["matrix_bytes"] == 4 * 134_479_872
    assert figures["work"]["kv_bytes_per_token"] == 2 * 30 * 3 * 64 * 4
    for name in ("prefill_tokens_per_second", "decode_tokens_per_second"):
        assert 0 < figures[name]["min"] <= figures[name]["median"] <= figures[name]["max"]
    for name in ("prefill_arithmetic_share", "decode_arithmetic_share", "decode_bandwidth_share"):
        assert figures[name] > 0
    assert figures["machine"]["read_bytes"] >= figures["work"]["matrix_bytes"]
    assert figures["machine"]["read_gb_per_second"] > 0
    assert "product of" in figures["machine"]["arithmetic"]
    for name in ("ttft_ms", "itl_ms"):
        assert 0 < figures[name]["p50"] <= figures[name]["p90"] <= figures[name]["p99"]


def test_native_kernels_read_weights_as_they_are_stored(cutaway_command: CutawayCommand, smollm: str) -> None:
    done = cutaway_command("bench", "offline", "-m", smollm, "--json", *SMALL, "--kernels", "native", check=True)
    figures = json.loads(done.stdout)
    assert figures["engine"]["kernels"].startswith("native")
    # All tensors but the norms, which are 61 vectors of 576 numbers of 4 bytes; the rest of the file is its header.
    assert figures["work"]["matrix_bytes"] < Path(smollm).stat().st_size
    assert figures["work"]["matrix_bytes"] > 0.9 * Path(smollm).stat().st_size


def test_the_table_says_what_was_measured(cutaway_command: CutawayCommand, smollm: str) -> None:
    done = cutaway_command("bench", "offline", "-m", smollm, *SMALL, check=True)
    rows = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert list(rows) == ["model", "threads", "load", "machine", "prefill", "decode", "TTFT", "ITL"]
    assert rows["load"] == "1 requests of 20 + 4 tokens; 2 rounds after 0 to warm up"
    assert "of the arithmetic limit" in rows["prefill"]
    assert "of the bandwidth" in rows["decode"]
    assert "measuring: 100% of 2 rounds" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--input-len", "0"], "input_len: 0 is outside its limits"),
        (["--output-len", "1"], "output_len: 1 is too short"),
        (["--batch", "513"], "batch: 513 is outside its limits"),
        (["--rounds", "0"], "rounds: 0 is outside its limits"),
        (["--warmup", "-1"], "warmup: -1 is outside its limits"),
        (["--threads", "0"], "threads: 0 is outside its limits"),
        (["--input-len", "8190", "--output-len", "3"], "input_len: prompt and answer have 8,193 tokens"),
        (
            ["--context", "100", "--kv-memory", "6MB", "--batch", "4", "--input-len", "60", "--output-len", "30"],
            "batch: 4 requests of 90 tokens are more than the cache holds",
        ),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_what_cannot_be_measured_is_refused_with_its_reason(
    cutaway_command: CutawayCommand, smollm: str, arguments: list[str], complaint: str
) -> None:
    done = cutaway_command("bench", "offline", "-m", smollm, *arguments)
    assert (done.rc, done.stdout) == (2, "")
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
