"""Perplexity as llama.cpp measures it."""

import re
from pathlib import Path

from bench.peers.install import PeerMissing, llama_cpp_tools
from bench.peers.tool import run_tool
from cutaway.config import load_settings
from cutaway.machine import read_cpu

_ESTIMATE = re.compile(r"Final estimate: PPL = (\d+\.\d+)")


def perplexity(model_path: Path, text_path: Path, context: int = 512) -> float:
    """Run ``llama-perplexity``, which is built first if it is missing.

    The text is cut into windows of ``context`` tokens, each read anew after BOS where the model has one; what counts
    is the second half of each window, and a rest shorter than a window is left out.

    Args:
        model_path: GGUF file.
        text_path: UTF-8 text of at least two windows.
        context: tokens of a window.

    Raises:
        PeerMissing: llama.cpp cannot be built, or fails.
    """
    cpu = read_cpu()
    tools = llama_cpp_tools(load_settings().cache_dir / "peers" / "llama.cpp", cpu)
    command = [str(tools / "llama-perplexity"), "-m", str(model_path), "-f", str(text_path)]
    done = run_tool([*command, "-c", str(context), "-t", str(cpu.num_usable_cores)])
    return parse_perplexity(done.output + done.messages)


def parse_perplexity(text: str) -> float:
    """The final estimate in what ``llama-perplexity`` prints."""
    if (match := _ESTIMATE.search(text)) is None:
        raise PeerMissing(f"llama-perplexity says no final estimate: {text.strip()[-400:]!r}")
    return float(match[1])
