"""The three real models in float32 against transformers, which decodes the same files with its own reader."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from cutaway.executor.kv import allocate_kv, kv_shape
from cutaway.executor.torch_runner import TorchRunner
from cutaway.models.decoder import Decoder
from cutaway.models.registry import load_decoder
from cutaway.scheduler.plan import NewRequest, RequestFinished, SchedulerLimits
from cutaway.scheduler.scheduler import Scheduler
from cutaway.text.load import load_text
from cutaway.text.prompt import render_prompt
from cutaway.types import Message, Role, SamplingParams
from cutaway.weights.checkpoint import open_checkpoint

MODELS = ["smollm2-135m-instruct", "gemma-3-270m", "qwen2.5-coder-0.5b-instruct"]
NUM_GENERATED = 64
MAX_LOGIT_DIFFERENCE = 1e-3
BLOCK_SIZE = 16
STORY = (
    "The old lighthouse keeper counted the ships of the evening, wrote their names into his book, and lit the lamp. "
)
QUESTIONS = [
    "Is a tomato a fruit?",
    "토마토는 과일이야?",
    "Write a Python function that reverses a string.",
    "The capital of France is",
    "1, 1, 2, 3, 5, 8, 13,",
    "def fibonacci(n):\n    ",
    "Explain in one sentence why the sky is blue.",
    "List three colours 🎨 and three 동물.",
    "Translate to German: good morning",
    STORY * 28 + "Then",  # more than 600 tokens: Gemma's windows of 512 matter
]


@dataclass(frozen=True)
class Pair:
    """One model, loaded twice from the same file, and ten prompts for it."""

    ours: Decoder
    theirs: PreTrainedModel
    prompts: list[tuple[int, ...]]


@pytest.fixture(scope="module", params=MODELS)
def pair(request: pytest.FixtureRequest, real_model: Callable[[str], Path]) -> Pair:
    path = real_model(request.param)
    theirs = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    checkpoint = open_checkpoint(path)
    tokenizer, template = load_text(checkpoint)
    prompts = [
        render_prompt(tokenizer, template, [Message(Role.USER, question)]).encoding.token_ids for question in QUESTIONS
    ]
    assert max(map(len, prompts)) > 600
    return Pair(load_decoder(checkpoint, torch.float32), theirs, prompts)


def generate(model: Decoder, prompts: list[tuple[int, ...]]) -> list[list[int]]:
    """Greedy answers to all prompts together, through scheduler, paged cache and sampler."""
    longest = max(map(len, prompts)) + NUM_GENERATED
    num_blocks = len(prompts) * (-(-longest // BLOCK_SIZE))
    caches = allocate_kv(kv_shape(model.config, torch.float32), num_blocks * BLOCK_SIZE)
    runner = TorchRunner(model, caches, BLOCK_SIZE)
    scheduler = Scheduler(SchedulerLimits(BLOCK_SIZE, num_blocks, 256, len(prompts), len(prompts), longest))
    for index, prompt in enumerate(prompts):
        scheduler.add(NewRequest(str(index), prompt, NUM_GENERATED, (), SamplingParams(temperature=0)))
    answers: dict[str, list[int]] = {str(index): [] for index in range(len(prompts))}
    while (plan := scheduler.plan()) is not None:
        for outcome in scheduler.commit(runner.execute(plan)):
            if not isinstance(outcome, RequestFinished):
                answers[outcome.request_id].append(outcome.choice.token_id)
    return list(answers.values())


def our_logits(model: Decoder, token_ids: list[int]) -> torch.Tensor:
    """Logits after every position, [tokens, vocab]."""
    from test_models import caches_for, rows_of

    slots = torch.arange(len(token_ids))
    hidden = model(rows_of(torch.tensor(token_ids), 0, len(token_ids), slots), caches_for(model, len(token_ids)))
    return model.logits(hidden)


@torch.inference_mode()
def test_logits_and_greedy_answers_equal_those_of_transformers(pair: Pair) -> None:
    answers = generate(pair.ours, pair.prompts)
    for prompt, answer in zip(pair.prompts, answers, strict=True):
        assert len(answer) == NUM_GENERATED
        token_ids = [*prompt, *answer[:-1]]
        expected = pair.theirs(torch.tensor([token_ids])).logits[0]
        difference = (our_logits(pair.ours, token_ids) - expected).abs().max().item()
        assert difference < MAX_LOGIT_DIFFERENCE
        # Their own greedy answer would be the same: fed with ours, they choose ours at every step, but for ties.
        after_prompt = expected[len(prompt) - 1 :]
        ours = after_prompt.gather(1, torch.tensor(answer).unsqueeze(1)).squeeze(1)
        assert (after_prompt.amax(dim=1) - ours).max().item() <= MAX_LOGIT_DIFFERENCE
