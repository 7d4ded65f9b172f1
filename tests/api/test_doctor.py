"""``cutaway doctor`` as a user runs it."""

import json
import os
import platform
import re
from pathlib import Path

import pytest
import torch

from cutaway import __version__
from cutaway.cli.doctor import describe_limit, parse_libraries
from cutaway.config import DEFAULT_MODEL
from cutaway.hub.catalog import BUILT_IN
from cutaway.kernels import REFERENCE_KERNELS
from cutaway.kernels.native import fast_set, instruction_sets
from cutaway.machine import FEATURES

CPUINFO = Path("/proc/cpuinfo")
(PART,) = BUILT_IN[DEFAULT_MODEL].parts

MKL_BUILD = """PyTorch built with:
  - Intel(R) oneAPI Math Kernel Library Version 2024.2-Product Build 20240605 for Intel(R) 64 architecture
  - Intel(R) MKL-DNN v3.12.0 (Git Hash 80afa710)
  - Build settings: BLAS_INFO=mkl, BUILD_TYPE=Release, USE_MKLDNN=ON
"""
ARM_BUILD = "  - Intel(R) MKL-DNN v3.7.1 (Git Hash 8d26)\n  - Build settings: BLAS_INFO=open, USE_MKL=OFF\n"


def test_the_machine_is_described_in_plain_lines(cutaway_command):
    done = cutaway_command("doctor", check=True)
    labels = [line.split()[0] for line in done.stdout.splitlines()]
    assert labels == [
        *("cutaway", "python", "system", "processor", "features", "cores", "threads", "memory", "torch", "kernels"),
        *("bandwidth", "cache", "models", "index", "limit"),
    ]
    values = {line.split()[0]: line[10:].strip() for line in done.stdout.splitlines()}
    assert values["cutaway"] == __version__
    assert values["python"] == f"{platform.python_version()} ({platform.python_implementation()})"
    assert re.fullmatch("[1-9][0-9]* for arithmetic", values["threads"])
    version, *libraries, capability = values["torch"].split(", ")
    assert version == torch.__version__
    assert tuple(libraries) == parse_libraries(torch.__config__.show())
    assert capability == torch.backends.cpu.get_cpu_capability()
    native = ", ".join(instruction_sets()) + ("; --numerics fast" if fast_set() else "")
    assert native
    assert values["kernels"] in (
        f"native ({native}); {REFERENCE_KERNELS}, bfloat16",
        f"native ({native}); {REFERENCE_KERNELS}, float32",
    )
    assert f"cutaway pull {DEFAULT_MODEL}" in values["limit"]
    assert "not asked" in values["index"]
    assert done.stderr == ""


@pytest.mark.skipif(not CPUINFO.exists(), reason="only Linux has /proc/cpuinfo")
def test_features_are_those_that_the_system_lists(cutaway_command):
    (line,) = (line for line in cutaway_command("doctor").stdout.splitlines() if line.startswith("features"))
    words = set(CPUINFO.read_text().replace(":", " ").split())
    listed = [name for name, spellings in FEATURES.items() if words & set(spellings)]
    assert line[10:].strip() == (" ".join(listed) or "none that kernels here make use of")


def test_the_limit_follows_from_the_model_and_the_measurement(cutaway_command, real_model):
    cutaway_command.models_dir.mkdir(parents=True)
    (cutaway_command.models_dir / f"{DEFAULT_MODEL}.gguf").symlink_to(real_model(DEFAULT_MODEL))
    report = json.loads(cutaway_command("doctor", "--json", check=True).stdout)
    speed = report["speed"]
    assert speed["model"] == DEFAULT_MODEL
    assert speed["num_token_bytes"] == 96_576_768  # as the file stores them: 5 bits of most, 8.5 of the embedding
    assert speed["tokens_per_second"] == pytest.approx(speed["read_gb_per_second"] * 1e9 / speed["num_token_bytes"])
    assert speed["sentence"] == describe_limit(DEFAULT_MODEL, speed["num_token_bytes"], speed["read_gb_per_second"])
    assert report["cpu"]["num_usable_cores"] == report["torch"]["num_threads"]
    assert 0 < report["memory"]["available_bytes"] <= report["memory"]["total_bytes"]
    assert report["cache"]["models"] == [DEFAULT_MODEL]
    assert report["cache"]["num_bytes"] == BUILT_IN[DEFAULT_MODEL].num_bytes


def test_a_corrupt_model_does_not_stop_the_doctor(cutaway_command):
    cutaway_command.models_dir.mkdir(parents=True)
    (cutaway_command.models_dir / "noise.gguf").write_bytes(b"noise")
    done = cutaway_command("doctor", "--model", "noise", check=True)
    assert "noise cannot be read" in done.stdout


def test_an_unknown_model_is_refused(cutaway_command):
    done = cutaway_command("doctor", "--model", "smollm3-135m-instruct")
    assert done.rc == 2
    assert "did you mean smollm2-135m-instruct?" in done.stderr


def test_the_network_is_asked_only_on_request(cutaway_command, index_site):
    index_site.publish(PART, b"")
    env = {"CUTAWAY_INDEX_URL": index_site.index_url.replace("//", "//user:hunter2@")}
    cutaway_command("doctor", env=env, check=True)
    assert index_site.requests == []
    done = cutaway_command("doctor", "--network", env=env, check=True)
    assert f"reachable, has {DEFAULT_MODEL}" in done.stdout
    assert [path for _, path, _ in index_site.requests] == [f"/simple/{PART.project}/"]
    assert "hunter2" not in done.stdout


def test_an_index_that_cannot_be_reached_is_a_finding_and_no_failure(cutaway_command):
    env = {"CUTAWAY_INDEX_URL": "http://127.0.0.1:9/simple"}
    done = cutaway_command("doctor", "--network", env=env, check=True)
    assert "not reachable: 127.0.0.1:9 refused the connection" in done.stdout


@pytest.mark.parametrize(
    ("text", "libraries"),
    [
        (MKL_BUILD, ("MKL 2024.2", "oneDNN 3.12.0")),
        (ARM_BUILD, ("oneDNN 3.7.1", "BLAS open")),
        ("", ()),
    ],
)
def test_linear_algebra_is_read_from_what_torch_tells(text, libraries):
    assert parse_libraries(text) == libraries


def test_the_limit_is_one_plain_sentence():
    assert describe_limit("m", 270_000_000, 24.0) == (
        "one token of m reads 270 MB of weights; at 24.0 GB/s that allows at most 89 tokens/s for one answer at a time"
    )


def test_a_torch_that_is_broken_is_the_finding(cutaway_command):
    broken = cutaway_command.folder / "broken"
    broken.mkdir()
    (broken / "torch.py").write_text("raise ImportError('libgomp.so.1: cannot open shared object file')")
    done = cutaway_command("doctor", env={"PYTHONPATH": os.fspath(broken)})
    assert done.rc == 1
    assert "torch, which does the arithmetic, cannot be loaded: libgomp.so.1: cannot open" in done.stderr
    assert "Traceback" not in done.stderr
