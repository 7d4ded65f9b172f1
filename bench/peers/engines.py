"""Which engines are compared: a line each."""

import json
import sys
from collections.abc import Callable, Mapping
from ctypes.util import find_library
from functools import partial
from importlib.metadata import version
from pathlib import Path

from bench.peers.engine import Engine, Place
from bench.peers.install import LLAMA_CPP, VLLM, llama_cpp_tools, vllm_python
from bench.peers.llama_cpp import LlamaCpp
from bench.peers.resident import ResidentEngine
from cutaway import __version__
from cutaway.kernels import native
from cutaway.weights.checkpoint import open_checkpoint

FAST = "Cutaway, fast"
# Each with its fields of EngineOptions, beside those in COMMON.
OWN: Mapping[str, Mapping[str, object]] = {
    "Cutaway": {"kernels": "native"},
    FAST: {"kernels": "native", "numerics": "fast"},
}
COMMON: Mapping[str, object] = {
    "prefix_cache": False,  # every prompt is fresh
    "max_prompt_tokens": 512,  # nobody reads along: prompts first, so that all requests go on together
    "max_running": 64,
    "kv_memory": 1 << 30,
}
VLLM_CACHE_GIB = 1


def open_engine(name: str, place: Place) -> Engine:
    """An engine of ``ENGINES``; a peer is installed if it is missing.

    Raises:
        PeerMissing: it cannot be.
        ModelError: the model's files are at fault, or are not for this peer.
    """
    return ENGINES[name](place)


def _own(name: str, place: Place) -> Engine:
    options = json.dumps({**COMMON, "num_threads": place.num_threads, **OWN[name]})
    command = [sys.executable, "-m", "bench.peers.cutaway_worker", str(place.model), options]
    facts = {"version": __version__, "weights": open_checkpoint(place.model).quantization}
    return ResidentEngine(name, facts, command, {}, _log_path(place, name))


def _llama_cpp(place: Place) -> Engine:
    tools = llama_cpp_tools(place.folder / "llama.cpp", place.cpu)
    return LlamaCpp(tools, place.model, place.num_threads, LLAMA_CPP, open_checkpoint(place.model).quantization)


def _vllm(place: Place) -> Engine:
    python = vllm_python(place.folder / "vllm")
    command = [str(python), "-m", "bench.peers.vllm_worker", str(_hf_copy(place))]
    settings = {
        "VLLM_CPU_KVCACHE_SPACE": str(VLLM_CACHE_GIB),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # in one process a step is one call
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": str(place.num_threads),
    }
    if place.num_threads < place.cpu.num_usable_cores:
        settings["VLLM_CPU_OMP_THREADS_BIND"] = f"0-{place.num_threads - 1}"  # else it takes all
    # As vLLM advises; the second is there if the system has it.
    preloads = [*map(str, python.parent.parent.glob("lib/libiomp5.so")), find_library("tcmalloc_minimal")]
    settings["LD_PRELOAD"] = ":".join(path for path in preloads if path)
    facts = {"version": VLLM[0], "weights": "bfloat16"}
    return ResidentEngine("vLLM", facts, command, settings, _log_path(place, "vLLM"))


def _transformers(place: Place) -> Engine:
    # That of this environment: Cutaway's tests depend on it.
    command = [sys.executable, "-m", "bench.peers.transformers_worker", str(_hf_copy(place))]
    facts = {"version": f"transformers=={version('transformers')}", "weights": "bfloat16"}
    arguments = ["--threads", str(place.num_threads)]
    return ResidentEngine("transformers", facts, [*command, *arguments], {}, _log_path(place, "transformers"))


PEERS: Mapping[str, Callable[[Place], Engine]] = {
    "llama.cpp": _llama_cpp,
    "vLLM": _vllm,
    "transformers": _transformers,
}
ENGINES: Mapping[str, Callable[[Place], Engine]] = {
    **{name: partial(_own, name) for name in OWN if name != FAST or native.fast_set()},
    **PEERS,
}


def _hf_copy(place: Place) -> Path:
    folder = place.folder / "models" / f"{place.model.stem}-bfloat16"
    if not (folder / "config.json").exists():
        from bench.peers.hf_copy import write_hf_copy  # needs torch, once

        write_hf_copy(place.model, folder)
    return folder


def _log_path(place: Place, name: str) -> Path:
    folder = place.folder / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name} {place.model.stem}.txt"
