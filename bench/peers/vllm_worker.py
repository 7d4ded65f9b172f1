"""vLLM in a process of its own, stepped by hand. Runs in vLLM's environment, where there is no Cutaway."""

import argparse
from collections.abc import Callable

from bench.peers.wire import serve
from bench.peers.workload import Phases, Workload, make_prompts, time_answers

MAX_LENGTH = 8_192


def load(path: str) -> Callable[[Workload, int], Phases]:
    """Load the model of a folder; the result does a piece of work."""
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import RequestOutputKind

    # Each prompt is fresh, so a prefix cache could only cost; text is nobody's business here.
    llm = LLM(
        model=path,
        dtype="bfloat16",
        max_model_len=MAX_LENGTH,
        skip_tokenizer_init=True,
        enable_prefix_caching=False,
        seed=0,
    )

    def run(workload: Workload, seed: int) -> Phases:
        names = []
        for index, prompt in enumerate(make_prompts(workload, seed)):
            names.append(f"{seed}/{index}")
            params = SamplingParams(
                temperature=0,
                max_tokens=workload.num_generated,
                ignore_eos=True,
                detokenize=False,
                output_kind=RequestOutputKind.DELTA,
            )
            llm.llm_engine.add_request(names[-1], {"prompt_token_ids": prompt}, params)

        def step() -> list[str]:
            return [out.request_id for out in llm.llm_engine.step() for _ in out.outputs[0].token_ids]

        return time_answers(step, names, workload.num_generated)

    return run


def main() -> None:
    """Serve the folder named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path")
    arguments = parser.parse_args()
    serve(lambda: load(arguments.path))


if __name__ == "__main__":
    main()
