"""Cutaway in a process of its own: scheduler, cache and kernels as an engine has them, without text."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

from bench.peers.wire import serve
from bench.peers.workload import Phases, Workload, make_prompts, time_answers
from cutaway.engine.core import EngineCore
from cutaway.engine.load import load_core
from cutaway.engine.options import EngineOptions
from cutaway.scheduler.plan import NewRequest
from cutaway.text.fake import ByteTokenizer
from cutaway.types import SamplingParams
from cutaway.weights.checkpoint import open_checkpoint

GREEDY = SamplingParams(temperature=0)


def run(core: EngineCore, workload: Workload, seed: int) -> Phases:
    """Answer through scheduler, cache and greedy sampler."""
    names = []
    for index, prompt in enumerate(make_prompts(workload, seed)):
        names.append(f"{seed}/{index}")
        core.scheduler.add(NewRequest(names[-1], tuple(prompt), workload.num_generated, (), GREEDY))

    def step() -> list[str]:
        plan = core.scheduler.plan()
        assert plan is not None, "a request has not ended"
        result = core.runner.execute(plan)
        core.scheduler.commit(result)
        return list(result.choices)

    return time_answers(step, names, workload.num_generated)


def main() -> None:
    """Serve the model named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("options", type=json.loads, help="fields of EngineOptions")
    arguments = parser.parse_args()

    def load() -> Callable[[Workload, int], Phases]:
        options = EngineOptions(**arguments.options)
        core = load_core(open_checkpoint(arguments.path), arguments.path.stem, ByteTokenizer(), options)
        return lambda workload, seed: run(core, workload, seed)

    serve(load)


if __name__ == "__main__":
    main()
