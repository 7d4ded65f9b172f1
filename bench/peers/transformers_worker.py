"""Transformers in a process of its own: plain forward passes over a growing cache."""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from bench.peers.wire import serve
from bench.peers.workload import Phases, Workload, make_prompts, time_answers


@torch.inference_mode()
def run(model: PreTrainedModel, workload: Workload, seed: int) -> Phases:
    """Read all prompts in one pass, then choose the best token again and again."""
    names = [str(index) for index in range(workload.num_requests)]
    token_ids, cache = torch.tensor(make_prompts(workload, seed)), None

    def step() -> list[str]:
        nonlocal token_ids, cache
        output = model(token_ids, cache=cache, use_cache=True, logits_to_keep=1)
        token_ids, cache = output.logits[:, -1:].argmax(-1), output.cache
        return names

    return time_answers(step, names, workload.num_generated)


def main() -> None:
    """Serve the folder named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--threads", type=int, required=True)
    arguments = parser.parse_args()

    def load() -> Callable[[Workload, int], Phases]:
        torch.set_num_threads(arguments.threads)
        model = AutoModelForCausalLM.from_pretrained(arguments.path, dtype=torch.bfloat16).eval()  # type: ignore[no-untyped-call]
        return lambda workload, seed: run(model, workload, seed)

    serve(load)


if __name__ == "__main__":
    main()
