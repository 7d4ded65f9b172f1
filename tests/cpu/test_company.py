"""The answer does not depend on company: ids and log-probabilities, bit for bit, on a real model and a tiny one."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

from cutaway.executor.kv import allocate_kv, kv_shape
from cutaway.executor.torch_runner import TorchRunner
from cutaway.models.decoder import Decoder
from cutaway.models.registry import load_decoder
from cutaway.scheduler.plan import NewRequest, RequestFinished, SchedulerLimits
from cutaway.scheduler.scheduler import Scheduler
from cutaway.types import SamplingParams, TokenChoice
from cutaway.weights.checkpoint import open_checkpoint

MAX_LENGTH = 320


@dataclass(frozen=True)
class Subject:
    """A model, and requests for it that differ in length and in how they choose."""

    model: Decoder
    dtype: torch.dtype
    requests: list[NewRequest]
    alone: dict[str, list[TokenChoice]]


def make_requests(vocab_size: int, count: int) -> list[NewRequest]:
    dice = random.Random(11)
    requests = []
    for index in range(count):
        prompt = tuple(dice.randrange(vocab_size) for _ in range(dice.choice([1, 2, 15, 16, 17, 60, 140, 260])))
        sampling = SamplingParams(
            temperature=dice.choice([0.0, 0.7, 1.3]),
            top_p=dice.choice([1.0, 0.9]),
            repetition_penalty=dice.choice([1.0, 1.2]),
            seed=index,
        )
        requests.append(NewRequest(str(index), prompt, dice.choice([1, 5, 20]), (), sampling, num_top=3))
    return requests


def run(
    model: Decoder, dtype: torch.dtype, requests: list[NewRequest], limits: SchedulerLimits
) -> dict[str, list[TokenChoice]]:
    """Answer all requests under the limits; what was chosen for each."""
    caches = allocate_kv(kv_shape(model.config, dtype), limits.num_blocks * limits.block_size)
    runner = TorchRunner(model, caches, limits.block_size)
    scheduler = Scheduler(limits)
    for new in requests:
        scheduler.add(new)
    choices: dict[str, list[TokenChoice]] = {new.request_id: [] for new in requests}
    while (plan := scheduler.plan()) is not None:
        for outcome in scheduler.commit(runner.execute(plan)):
            if not isinstance(outcome, RequestFinished):
                choices[outcome.request_id].append(outcome.choice)
    return choices


def limits(block_size: int = 16, max_step_tokens: int = 512, max_running: int = 16) -> SchedulerLimits:
    num_blocks = 16 * MAX_LENGTH // block_size
    return SchedulerLimits(block_size, num_blocks, max_step_tokens, max_running, 100, MAX_LENGTH)


def subject(model: Decoder, dtype: torch.dtype, count: int) -> Subject:
    requests = make_requests(model.config.vocab_size, count)
    alone: dict[str, list[TokenChoice]] = {}
    for new in requests:
        alone |= run(model, dtype, [new], limits())
    return Subject(model, dtype, requests, alone)


@pytest.fixture(scope="module", params=[torch.bfloat16, torch.float32], ids=str)
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """Windows, two rotary bases and one KV head: the architecture with the most to get wrong."""
    torch.manual_seed(5)
    config = Gemma3TextConfig(
        vocab_size=211,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=7,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=32,
        sliding_window=40,
        max_position_embeddings=MAX_LENGTH,
    )
    path = tmp_path_factory.mktemp("tiny")
    theirs = Gemma3ForCausalLM(config)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    theirs.save_pretrained(path)
    return subject(load_decoder(open_checkpoint(path), request.param), request.param, 24)


@pytest.fixture(scope="module")
def smollm(real_model: Callable[[str], Path]) -> Subject:
    checkpoint = open_checkpoint(real_model("smollm2-135m-instruct"))
    return subject(load_decoder(checkpoint, torch.bfloat16), torch.bfloat16, 8)


COMPANIES = [
    limits(),
    limits(max_step_tokens=7, max_running=4),
    limits(max_step_tokens=64, max_running=5),
    limits(block_size=1, max_step_tokens=33),
    limits(block_size=4, max_step_tokens=2048),
]


@pytest.mark.parametrize("company", COMPANIES, ids=str)
@pytest.mark.parametrize("order", [1, 2])
def test_a_tiny_model_answers_everybody_as_if_alone(tiny: Subject, company: SchedulerLimits, order: int) -> None:
    shuffled = random.Random(order).sample(tiny.requests, len(tiny.requests))
    assert run(tiny.model, tiny.dtype, shuffled, company) == tiny.alone


@pytest.mark.parametrize("company", COMPANIES[:3], ids=str)
def test_a_real_model_answers_everybody_as_if_alone(smollm: Subject, company: SchedulerLimits) -> None:
    assert run(smollm.model, smollm.dtype, smollm.requests, company) == smollm.alone


def test_logits_that_are_no_numbers_fail_their_own_request_only(tiny: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    poison = 210
    healthy = [
        new
        for new in tiny.requests
        if poison not in (*new.token_ids, *(choice.token_id for choice in tiny.alone[new.request_id]))
    ]
    assert len(healthy) > 5
    poisoned = tiny.model.embed.weight.clone()
    poisoned[poison] = torch.nan
    monkeypatch.setattr(tiny.model.embed, "weight", poisoned)
    sick = NewRequest("sick", (3, poison, 5), 5, (), SamplingParams(temperature=0))
    choices = run(tiny.model, tiny.dtype, [sick, *healthy], limits())
    assert choices.pop("sick") == []
    assert choices == {new.request_id: tiny.alone[new.request_id] for new in healthy}
