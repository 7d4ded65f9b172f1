"""The reference kernels beside transformers: the same weights, prompt, dtype and threads, in alternating rounds.

Also what it costs that an answer does not depend on company: the same engine with torch's own matrix product, whose
bits change with the number of rows.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from unittest.mock import patch

import torch
from torch.nn import functional
from transformers import AutoModelForCausalLM, PreTrainedModel

from bench.report import report
from cutaway.config import DEFAULT_MODEL, load_settings
from cutaway.executor.kv import KVStore
from cutaway.executor.model_runner import ModelRunner
from cutaway.executor.torch_model import TorchModel
from cutaway.hub.resolve import ensure
from cutaway.hub.store import ModelStore
from cutaway.kernels import reference as kernels
from cutaway.machine import read_cpu
from cutaway.models.build import load_decoder
from cutaway.models.decoder import Decoder
from cutaway.scheduler.plan import GroupLimits, NewRequest, SchedulerLimits
from cutaway.scheduler.scheduler import Scheduler
from cutaway.types import SamplingParams
from cutaway.weights.checkpoint import open_checkpoint

ROUNDS = 5
NUM_GENERATED = 64
PROMPT_LENGTHS = (128, 512)
BATCH_SIZES = (1, 32)
DTYPE = torch.bfloat16
BLOCK_SIZE = 16
MAX_LENGTH = 1024


@dataclass(frozen=True, slots=True)
class Phases:
    """Seconds of the steps that read prompts, seconds of those that only went on with answers, and their tokens."""

    prefill_s: float
    decode_s: float
    num_decoded: int


def run_ours(model: Decoder, num_prompt: int, batch_size: int) -> Phases:
    """Answer through scheduler, cache and greedy sampler."""
    num_blocks = batch_size * MAX_LENGTH // BLOCK_SIZE
    runner = ModelRunner(TorchModel(model), KVStore(model.config, DTYPE.itemsize, BLOCK_SIZE, [num_blocks]))
    limits = SchedulerLimits((GroupLimits(num_blocks),), BLOCK_SIZE, 512, 512, batch_size, batch_size, MAX_LENGTH)
    scheduler = Scheduler(limits)
    for index in range(batch_size):
        prompt = tuple(range(100 + index, 100 + index + num_prompt))
        scheduler.add(NewRequest(str(index), prompt, NUM_GENERATED, (), SamplingParams(temperature=0)))
    prefill_s, decode_s, num_decoded = 0.0, 0.0, 0
    begin = time.perf_counter()
    while (plan := scheduler.plan()) is not None:
        scheduler.commit(runner.execute(plan))
        reading = any(rows.start < num_prompt for rows in plan.rows)
        end = time.perf_counter()
        if reading:
            prefill_s += end - begin
        else:
            decode_s += end - begin
            num_decoded += plan.num_tokens
        begin = end
    return Phases(prefill_s, decode_s, num_decoded)


def run_dependent(model: Decoder, num_prompt: int, batch_size: int) -> Phases:
    """As ``run_ours``, without products in tiles of a fixed height."""
    with patch.object(kernels, "linear", functional.linear):
        return run_ours(model, num_prompt, batch_size)


@torch.inference_mode()
def run_theirs(model: PreTrainedModel, num_prompt: int, batch_size: int) -> Phases:
    """The same in transformers: prompts of one length need no padding there."""
    prompts = torch.stack([torch.arange(100 + index, 100 + index + num_prompt) for index in range(batch_size)])
    begin = time.perf_counter()
    output = model(prompts, use_cache=True, logits_to_keep=1)
    token_ids = output.logits[:, -1:].argmax(-1)
    prefill = time.perf_counter() - begin
    for _ in range(NUM_GENERATED - 1):
        output = model(token_ids, past_key_values=output.past_key_values, use_cache=True)
        token_ids = output.logits[:, -1:].argmax(-1)
    return Phases(prefill, time.perf_counter() - begin - prefill, batch_size * (NUM_GENERATED - 1))


def main() -> None:
    """Measure."""
    torch.set_num_threads(read_cpu().num_usable_cores)
    settings = load_settings()
    path = ensure(DEFAULT_MODEL, ModelStore(settings.cache_dir, settings.index_url)).path
    theirs = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=DTYPE).eval()  # type: ignore[no-untyped-call]
    ours = load_decoder(open_checkpoint(path), DTYPE)
    runs: dict[str, Callable[[int, int], Phases]] = {
        "cutaway": lambda num_prompt, batch_size: run_ours(ours, num_prompt, batch_size),
        "cutaway, rows not independent": lambda num_prompt, batch_size: run_dependent(ours, num_prompt, batch_size),
        "transformers": lambda num_prompt, batch_size: run_theirs(theirs, num_prompt, batch_size),
    }
    for batch_size in BATCH_SIZES:
        for num_prompt in PROMPT_LENGTHS if batch_size == 1 else PROMPT_LENGTHS[:1]:
            rounds: dict[str, list[Phases]] = {name: [] for name in runs}
            for _ in range(ROUNDS + 1):
                for name, run in runs.items():
                    rounds[name].append(run(num_prompt, batch_size))
            facts = {"model": DEFAULT_MODEL, "dtype": "bfloat16", "prompt": num_prompt, "batch": batch_size}
            for name, times in rounds.items():
                prefill = [batch_size * num_prompt / phases.prefill_s for phases in times[1:]]
                decode = [phases.num_decoded / phases.decode_s for phases in times[1:]]
                report("prefill", "tokens/s", prefill, engine=name, **facts)
                report("decode", "tokens/s", decode, engine=name, **facts)


if __name__ == "__main__":
    main()
