"""Serving many at once: host cost of the scheduler, throughput, the prefix cache, and how even a stream stays."""

import random
import time
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import torch

from bench.report import report
from cutaway.config import DEFAULT_MODEL, load_settings
from cutaway.executor.kv import KVStore, kv_groups
from cutaway.executor.model import Model
from cutaway.executor.model_runner import ModelRunner
from cutaway.executor.torch_model import TorchModel
from cutaway.hub.resolve import ensure
from cutaway.hub.store import ModelStore
from cutaway.machine import read_cpu
from cutaway.models.build import load_decoder
from cutaway.scheduler.plan import GroupLimits, NewRequest, SchedulerLimits, StepResult
from cutaway.scheduler.scheduler import Scheduler
from cutaway.types import Draw, SamplingParams, TokenChoice
from cutaway.weights.checkpoint import open_checkpoint

DTYPE = torch.bfloat16
BLOCK_SIZE = 16
VOCAB_SIZE = 40_000
GREEDY = SamplingParams(temperature=0)
ROUNDS = 3


def make_request(name: str, num_prompt: int, num_generated: int, first: int = 0) -> NewRequest:
    """A prompt of random tokens; those of one ``name`` are the same."""
    dice = random.Random(name)
    prompt = tuple(dice.randrange(VOCAB_SIZE) for _ in range(num_prompt))
    return NewRequest(f"{name}/{first}", (*prompt, *range(first, first + 8)), num_generated, (), GREEDY)


def make_limits(model: Model, num_tokens: int, max_running: int, max_step_tokens: int = 512) -> SchedulerLimits:
    """Limits for a model without windows."""
    groups = (GroupLimits(num_tokens // BLOCK_SIZE, None, kv_groups(model.config, DTYPE.itemsize)[0].cost_per_key),)
    return SchedulerLimits(groups, BLOCK_SIZE, max_step_tokens, 64, max_running, 1024, num_tokens)


class Server:
    """A scheduler and a runner, stepped by hand."""

    def __init__(self, model: Model, limits: SchedulerLimits) -> None:
        self.scheduler = Scheduler(limits)
        store = KVStore(model.config, DTYPE.itemsize, limits.block_size, [group.num_blocks for group in limits.groups])
        self.runner = ModelRunner(model, store)

    def step(self) -> dict[str, float]:
        """Do a step; when each request that got a token got it. Empty when nothing is left to do."""
        plan = self.scheduler.plan(time.perf_counter())
        if plan is None:
            return {}
        result = self.runner.execute(plan)
        self.scheduler.commit(result)
        now = time.perf_counter()
        return dict.fromkeys(result.choices, now)

    def finish(self) -> None:
        """Step until everybody has finished."""
        while self.scheduler.num_running or self.scheduler.num_waiting:
            self.step()


def host_cost(model: Model, num_requests: int) -> list[float]:
    """Milliseconds of plan and commit in steps that continue so many answers."""
    scheduler = Scheduler(make_limits(model, num_requests * 512, num_requests, num_requests * 160))
    for index in range(num_requests):
        scheduler.add(make_request(str(index), 128, 300))
    choice = TokenChoice(5, 0.0, 1, (), Draw(None, 0.0, 1.0, 1.0))
    costs = []
    for _ in range(250):
        begin = time.perf_counter()
        plan = scheduler.plan()
        planned = time.perf_counter()
        assert plan is not None
        result = StepResult(plan.plan_id, {rows.request_id: choice for rows in plan.rows if rows.needs_sample}, {})
        computed = time.perf_counter()
        scheduler.commit(result)
        if plan.num_tokens == num_requests:
            costs.append(1e3 * (planned - begin + time.perf_counter() - computed))
    return costs


def host_work(model: Model, num_prompt: int) -> list[float]:
    """Milliseconds of a step outside arithmetic (plan, commit, tensors) while an answer grows at that length."""
    server = Server(model, make_limits(model, num_prompt + 256, 1))
    server.scheduler.add(make_request(f"host {num_prompt}", num_prompt - 8, 32))
    costs: list[float] = []
    while True:
        begin = time.perf_counter()
        plan = server.scheduler.plan(begin)
        planned = time.perf_counter()
        if plan is None:
            return costs
        result = server.runner.execute(plan)
        computed = time.perf_counter()
        server.scheduler.commit(result)
        if plan.num_tokens == 1:
            costs.append(1e3 * (planned - begin + time.perf_counter() - computed) + result.times.prepare_ns / 1e6)


def throughput(model: Model, num_requests: int) -> float:
    """Generated tokens a second while so many requests grow from 128 to 192 tokens, prompts not counted."""
    server = Server(model, make_limits(model, num_requests * 256, num_requests))
    for index in range(num_requests):
        server.scheduler.add(make_request(f"{num_requests} {index}", 120, 64))
    num_tokens, seconds = 0, 0.0
    while server.scheduler.num_running or server.scheduler.num_waiting:
        begin = time.perf_counter()
        got = server.step()
        if len(got) == num_requests:
            num_tokens += num_requests
            seconds += time.perf_counter() - begin
    return num_tokens / seconds


def first_token(server: Server, new: NewRequest) -> float:
    """Seconds from asking to the first token."""
    begin = time.perf_counter()
    server.scheduler.add(new)
    while new.request_id not in (got := server.step()):
        pass
    server.finish()
    return got[new.request_id] - begin


@dataclass(frozen=True, slots=True)
class Stream:
    """Seconds between the tokens of an answer, before and while 8,000 tokens of a prompt are read beside it."""

    alone: list[float]
    beside: list[float]


def beside_a_long_prompt(model: Model) -> Stream:
    """Let an answer run for 40 tokens, and then until the prompt is read."""
    server = Server(model, make_limits(model, 16_384, 4))
    stream, reader = make_request("stream", 32, 4000), make_request("reader", 8000, 1)
    server.scheduler.add(stream)
    times = [server.step()[stream.request_id] for _ in range(40)]
    alone = [later - earlier for earlier, later in pairwise(times)]
    server.scheduler.add(reader)
    times = times[-1:]
    while reader.request_id not in (got := server.step()):
        times.append(got[stream.request_id])
    return Stream(alone, [later - earlier for earlier, later in pairwise([*times, got[stream.request_id]])])


def main() -> None:
    """Measure."""
    torch.set_num_threads(read_cpu().num_usable_cores)
    settings = load_settings()
    path = ensure(DEFAULT_MODEL, ModelStore(settings.cache_dir, settings.index_url)).path
    model = TorchModel(load_decoder(open_checkpoint(path), DTYPE))
    report("plan and commit at 256 running requests", "ms", host_cost(model, 256))
    facts = {"model": DEFAULT_MODEL, "dtype": "bfloat16"}
    for num_prompt in (128, 8000):
        report(
            "plan, commit and tensors of one answer", "ms", host_work(model, num_prompt), context=num_prompt, **facts
        )
    rates: dict[int, list[float]] = {1: [], 32: []}
    for _ in range(ROUNDS):
        for num_requests, values in rates.items():
            values.append(throughput(model, num_requests))
    for num_requests, values in rates.items():
        report("decode", "tokens/s", values, requests=num_requests, context="128 to 192", **facts)
    cold, warm = [], []
    for index in range(ROUNDS):
        server = Server(model, make_limits(model, 8192, 4))
        cold.append(first_token(server, make_request(f"prefix {index}", 2000, 2)))
        warm.append(first_token(server, make_request(f"prefix {index}", 2000, 2, first=100)))
    report("first token, prompt of 2,008", "s", cold, cached=0, **facts)
    report("first token, prompt of 2,008", "s", warm, cached=2000, **facts)
    streams = [beside_a_long_prompt(model) for _ in range(ROUNDS)]
    ratios = [max(s.beside) / median(s.beside) for s in streams]
    report("longest gap over median gap beside a prompt of 8,000", "", ratios, **facts)
    report("longest gap beside a prompt of 8,000", "s", [max(s.beside) for s in streams], **facts)
    report("median gap beside a prompt of 8,000", "s", [median(s.beside) for s in streams], **facts)
    report("median gap alone", "s", [median(s.alone) for s in streams], **facts)
    report("reading a prompt of 8,000 beside an answer", "s", [sum(s.beside) for s in streams], **facts)


if __name__ == "__main__":
    main()
