"""The answer does not depend on company: ids and log-probabilities, bit for bit, on a real model and a tiny one."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from serving import answer, limits_for
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

from cutaway.models.build import load_decoder
from cutaway.models.decoder import Decoder
from cutaway.scheduler.plan import Action, NewRequest, SchedulerLimits
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
            logit_bias=dice.choice([(), tuple((token_id, 4.0) for token_id in range(5, 15))]),
            dry_multiplier=dice.choice([0.0, 0.8]),
            typical_p=dice.choice([1.0, 0.9]),
            xtc_probability=dice.choice([0.0, 0.5]),
            seed=index,
        )
        max_tokens, end_ids = dice.choice([1, 5, 20]), dice.choice([(), tuple(range(12))])
        requests.append(
            NewRequest(str(index), prompt, max_tokens, end_ids, sampling, num_top=3, min_tokens=4, banned_ids=end_ids)
        )
    return requests


def run(
    model: Decoder, dtype: torch.dtype, requests: list[NewRequest], limits: SchedulerLimits
) -> dict[str, list[TokenChoice]]:
    """Answer all requests under the limits; what was chosen for each."""
    return answer(model, dtype, requests, limits)[0]


def limits(
    model: Decoder, block_size: int = 16, max_step_tokens: int = 512, num_tokens: int = 16 * MAX_LENGTH, **others: int
) -> SchedulerLimits:
    return limits_for(model.config, num_tokens, block_size, max_step_tokens, **others)


def subject(model: Decoder, dtype: torch.dtype, count: int) -> Subject:
    requests = make_requests(model.config.vocab_size, count)
    alone: dict[str, list[TokenChoice]] = {}
    for new in requests:
        alone |= run(model, dtype, [new], limits(model))
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


# Alone is cold, whole, and never preempted. Company differs in all of these; a small pool preempts.
COMPANIES = [
    {},
    {"max_step_tokens": 7, "max_running": 4},
    {"max_step_tokens": 64, "max_running": 5, "prefix_cache": False},
    {"block_size": 1, "max_step_tokens": 33},
    {"block_size": 4, "max_step_tokens": 2048},
    {"num_tokens": MAX_LENGTH + 32, "max_step_tokens": 50, "max_prompt_tokens": 9},
]


@pytest.mark.parametrize("company", COMPANIES, ids=str)
@pytest.mark.parametrize("order", [1, 2])
def test_a_tiny_model_answers_everybody_as_if_alone(tiny: Subject, company: dict[str, int], order: int) -> None:
    shuffled = random.Random(order).sample(tiny.requests, len(tiny.requests))
    assert run(tiny.model, tiny.dtype, shuffled, limits(tiny.model, **company)) == tiny.alone


@pytest.mark.parametrize("company", [COMPANIES[1], COMPANIES[2], COMPANIES[5]], ids=str)
def test_a_real_model_answers_everybody_as_if_alone(smollm: Subject, company: dict[str, int]) -> None:
    assert run(smollm.model, smollm.dtype, smollm.requests, limits(smollm.model, **company)) == smollm.alone


def test_preempted_requests_answer_as_if_alone(tiny: Subject) -> None:
    dice = random.Random(3)
    requests = [
        NewRequest(
            f"preempted {index}", tuple(dice.randrange(200) for _ in range(60)), 30, (), SamplingParams(seed=index)
        )
        for index in range(4)
    ]
    alone: dict[str, list[TokenChoice]] = {}
    for new in requests:
        alone |= run(tiny.model, tiny.dtype, [new], limits(tiny.model))
    # All four prompts fit, not all four answers.
    choices, plans = answer(tiny.model, tiny.dtype, requests, limits(tiny.model, num_tokens=18 * 16, max_running=4))
    assert choices == alone
    assert any(decision.action is Action.PREEMPTED for plan in plans for decision in plan.decisions)
    assert any(decision.kind == "resumed" for plan in plans for decision in plan.decisions)


def test_a_second_turn_finds_the_first_one_and_is_answered_as_if_it_did_not(tiny: Subject) -> None:
    first = max(tiny.requests, key=lambda new: len(new.token_ids) + len(tiny.alone[new.request_id]))
    said = tuple(choice.token_id for choice in tiny.alone[first.request_id])
    second = replace(first, request_id="second", token_ids=(*first.token_ids, *said, 3, 5, 7), max_tokens=20)
    cold = run(tiny.model, tiny.dtype, [second], limits(tiny.model))["second"]
    small = limits(tiny.model, max_running=1)
    choices, plans = answer(tiny.model, tiny.dtype, [first, second], small)
    assert choices["second"] == cold
    lookup = plans[-1].lookups or [lookup for plan in plans for lookup in plan.lookups]
    assert lookup[-1].num_cached > len(first.token_ids) - small.block_size


def test_copies_of_a_request_share_its_prompt_and_answer_as_if_alone(tiny: Subject) -> None:
    parent = replace(tiny.requests[0], token_ids=tuple(range(3, 103)), max_tokens=20)
    copies = [
        replace(parent, request_id=f"copy {index}", fork_of=parent.request_id, sampling=SamplingParams(seed=index))
        for index in range(4)
    ]
    alone = {}
    for new in (parent, *copies):
        alone |= run(tiny.model, tiny.dtype, [replace(new, fork_of=None)], limits(tiny.model))
    choices, plans = answer(tiny.model, tiny.dtype, [parent, *copies], limits(tiny.model))
    assert choices == alone
    assert [lookup.num_cached for plan in plans for lookup in plan.lookups] == [0, 99, 99, 99, 99]
    assert sum(len(plan.copies) for plan in plans) >= 4


def test_a_request_of_which_every_token_is_banned_fails_alone(tiny: Subject) -> None:
    everything = tuple(range(tiny.model.config.vocab_size))
    banned = NewRequest("banned", (3, 5), 5, (), SamplingParams(), min_tokens=2, banned_ids=everything)
    choices = run(tiny.model, tiny.dtype, [banned, *tiny.requests[:3]], limits(tiny.model))
    assert choices.pop("banned") == []
    assert choices == {new.request_id: tiny.alone[new.request_id] for new in tiny.requests[:3]}


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
    choices = run(tiny.model, tiny.dtype, [sick, *healthy], limits(tiny.model))
    assert choices.pop("sick") == []
    assert choices == {new.request_id: tiny.alone[new.request_id] for new in healthy}
