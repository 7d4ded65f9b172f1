"""Loading a model takes hardly more memory than the loaded model, because pages of the file do not pile up."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

MAX_PEAK_RATIO = 1.2

# Everything is measured from just before the load, so that the size of torch hides nothing.
PROGRAM = """
import sys, torch
from pathlib import Path
from cutaway.weights.checkpoint import open_checkpoint
from cutaway.weights.decoded import DecodedWeights

def status(key):
    for line in open("/proc/self/status"):
        if line.startswith(key):
            return int(line.split()[1])

source = open_checkpoint(Path(sys.argv[1])).weights()
weights = DecodedWeights(source)
warm = torch.empty(64, dtype=torch.bfloat16)
weights.read_into("model.norm.weight", warm)
before = status("VmRSS")
loaded = {}
for name in source:
    loaded[name] = torch.empty(source.shape(name), dtype=torch.bfloat16)
    weights.read_into(name, loaded[name])
source.close()
resident, peak = status("VmRSS") - before, status("VmHWM") - before
print(resident, peak, sum(tensor.nbytes for tensor in loaded.values()) // 1024)
"""


@pytest.mark.parametrize("num_rows", [[8192], [1024] * 8], ids=["one large tensor", "many tensors"])
def test_the_peak_at_load_is_close_to_the_size_afterwards(tmp_path: Path, num_rows: list[int]) -> None:
    path = tmp_path / "large.gguf"
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_tensor("output_norm.weight", np.ones(64, dtype=np.float32))
    for layer, rows in enumerate(num_rows):
        writer.add_tensor(f"blk.{layer}.ffn_up.weight", np.ones((rows, 4096), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True, check=True)
    resident, peak, expected = map(int, done.stdout.split())
    assert resident >= 0.9 * expected, "the measurement missed the loaded tensors"
    assert peak <= MAX_PEAK_RATIO * resident, f"{peak:,} KiB at the peak, {resident:,} KiB afterwards"


# The whole way of a command: weights, layers, cache, scheduler.
ENGINE = """
import sys
from pathlib import Path
from cutaway.engine.load import load_core
from cutaway.engine.options import EngineOptions
from cutaway.models.native import native_bytes
from cutaway.text.load import load_text
from cutaway.weights.checkpoint import open_checkpoint

def status(key):
    for line in open("/proc/self/status"):
        if line.startswith(key):
            return int(line.split()[1])

checkpoint, kernels = open_checkpoint(Path(sys.argv[1])), sys.argv[2]
tokenizer, _ = load_text(checkpoint)
num_bytes = native_bytes(checkpoint.weights())
if kernels == "reference":
    import cutaway.engine.reference
    num_bytes = checkpoint.num_weights * 2
options = EngineOptions(dtype="bfloat16" if kernels == "reference" else "auto", kernels=kernels)
before = status("VmRSS")
core = load_core(checkpoint, "model", tokenizer, options)
print(status("VmRSS") - before, status("VmHWM") - before, num_bytes // 1024, "torch" in sys.modules)
"""


@pytest.mark.parametrize("kernels", ["reference", "native"])
def test_the_peak_of_loading_a_real_quantized_model_is_close_to_the_size_afterwards(
    real_model: Callable[[str], Path], kernels: str
) -> None:
    command = [sys.executable, "-c", ENGINE, str(real_model("smollm2-135m-instruct")), kernels]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    *sizes, has_torch = done.stdout.split()
    resident, peak, expected = map(int, sizes)
    assert resident >= 0.9 * expected, "the measurement missed the weights"
    assert peak <= MAX_PEAK_RATIO * resident, f"{peak:,} KiB at the peak, {resident:,} KiB afterwards"
    assert has_torch == str(kernels == "reference")


# A process counts the memory of the one that started it as its own peak, so a small one stands between.
STARTER = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss)
"""


def test_a_command_takes_little_beside_weights_and_cache(real_model: Callable[[str], Path]) -> None:
    path, cache_bytes = real_model("smollm2-135m-instruct"), 100_000_000
    question = " ".join(map(str, range(700)))  # about 2,000 tokens, most of what the cache holds
    ask = [Path(sys.executable).parent / "cutaway", "ask", "-m", path, "--max-tokens", "8", question]
    command = [sys.executable, "-c", STARTER, *ask, "--kv-memory", str(cache_bytes)]
    status, peak_kib = map(int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert status == 0
    assert peak_kib * 1024 < 1.5 * path.stat().st_size + cache_bytes + 250_000_000
