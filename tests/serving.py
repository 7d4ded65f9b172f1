"""A scheduler and a runner around a model, without the engine, for tests of what they compute together."""

from collections.abc import Iterable

import torch

from cutaway.executor.kv import KVStore, kv_groups
from cutaway.executor.model_runner import ModelRunner
from cutaway.executor.torch_model import TorchModel
from cutaway.models.config import ModelConfig
from cutaway.models.decoder import Decoder
from cutaway.models.native import NativeDecoder
from cutaway.scheduler.plan import GroupLimits, NewRequest, RequestFinished, SchedulerLimits, StepPlan
from cutaway.scheduler.scheduler import Scheduler
from cutaway.types import TokenChoice


def limits_for(
    config: ModelConfig, num_tokens: int, block_size: int = 16, max_step_tokens: int = 512, **others: int | bool | str
) -> SchedulerLimits:
    """Limits with a cache of so many tokens in each group."""
    groups = tuple(
        GroupLimits(-(-num_tokens // block_size), group.window, group.cost_per_key)
        for group in kv_groups(config, torch.bfloat16.itemsize)
    )
    limits = {
        "max_prompt_tokens": max_step_tokens,
        "max_running": 16,
        "max_waiting": 10_000,
        "max_length": num_tokens,
    } | others
    return SchedulerLimits(groups, block_size, max_step_tokens, **limits)  # type: ignore[arg-type]


def make_runner(model: Decoder | NativeDecoder, dtype: torch.dtype, limits: SchedulerLimits) -> ModelRunner:
    """A runner with a cache for the limits."""
    num_blocks = [group.num_blocks for group in limits.groups]
    store = KVStore(model.config, dtype.itemsize, limits.block_size, num_blocks)
    return ModelRunner(TorchModel(model) if isinstance(model, Decoder) else model, store)


def answer(
    model: Decoder | NativeDecoder, dtype: torch.dtype, requests: Iterable[NewRequest], limits: SchedulerLimits
) -> tuple[dict[str, list[TokenChoice]], list[StepPlan]]:
    """Answer all requests; what was chosen for each, and the plans."""
    runner, scheduler = make_runner(model, dtype, limits), Scheduler(limits)
    choices: dict[str, list[TokenChoice]] = {}
    for new in requests:
        choices[new.request_id] = []
        assert not scheduler.add(new)
    plans = []
    while (plan := scheduler.plan(float(len(plans)))) is not None:
        plans.append(plan)
        for outcome in scheduler.commit(runner.execute(plan)):
            if not isinstance(outcome, RequestFinished):
                choices[outcome.request_id].append(outcome.choice)
        scheduler.check()
    return choices, plans
