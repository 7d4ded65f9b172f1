"""The three real models in float32 against transformers, which decodes the same files with its own reader."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from serving import answer, limits_for
from transformers import AutoModelForCausalLM, PreTrainedModel

from cutaway.models.build import load_decoder
from cutaway.models.decoder import Decoder
from cutaway.scheduler.plan import NewRequest
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
    requests = [
        NewRequest(str(index), prompt, NUM_GENERATED, (), SamplingParams(temperature=0))
        for index, prompt in enumerate(prompts)
    ]
    limits = limits_for(model.config, len(prompts) * longest, BLOCK_SIZE, 256, max_running=len(prompts))
    choices, _ = answer(model, torch.float32, requests, limits)
    return [[choice.token_id for choice in chosen] for chosen in choices.values()]


def our_logits(model: Decoder, token_ids: list[int]) -> torch.Tensor:
    """Logits after every position, [tokens, vocab]."""
    from test_models import caches_for, rows_of

    length = len(token_ids)
    batch = rows_of(model, torch.tensor(token_ids), 0, length, range(length), num_blocks=length)
    return model.logits(model(batch, caches_for(model, num_blocks=length)))


@torch.inference_mode()
def test_logits_and_greedy_answers_equal_those_of_transformers(pair: Pair) -> None:
    answers = generate(pair.ours, pair.prompts)
    for prompt, generated in zip(pair.prompts, answers, strict=True):
        assert len(generated) == NUM_GENERATED
        token_ids = [*prompt, *generated[:-1]]
        expected = pair.theirs(torch.tensor([token_ids])).logits[0]
        difference = (our_logits(pair.ours, token_ids) - expected).abs().max().item()
        assert difference < MAX_LOGIT_DIFFERENCE
        # Their own greedy answer would be the same: fed with ours, they choose ours at every step, but for ties.
        after_prompt = expected[len(prompt) - 1 :]
        ours = after_prompt.gather(1, torch.tensor(generated).unsqueeze(1)).squeeze(1)
        assert (after_prompt.amax(dim=1) - ours).max().item() <= MAX_LOGIT_DIFFERENCE
