"""The three real models under load: every answer the same as alone, bit for bit, and nothing of it in another's."""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
import torch
from serving import answer, limits_for, make_runner

from cutaway.engine.core import EngineCore
from cutaway.engine.engine import Engine
from cutaway.engine.load import load_core
from cutaway.engine.options import EngineOptions
from cutaway.engine.prepare import Preparer
from cutaway.engine.process import ProcessWorker
from cutaway.kernels import native
from cutaway.models.build import load_decoder
from cutaway.models.decoder import Decoder
from cutaway.models.native import NativeDecoder, load_native
from cutaway.scheduler.plan import Action, NewRequest, RequestFinished, SchedulerLimits, StepPlan, StepResult
from cutaway.scheduler.scheduler import Scheduler
from cutaway.text.load import load_text
from cutaway.types import Conversation, FinishReason, GenerationRequest, Message, Role, SamplingParams, TokenChoice
from cutaway.weights.checkpoint import open_checkpoint

MODELS = ("smollm2-135m-instruct", "qwen2.5-coder-0.5b-instruct", "gemma-3-270m")
NUM_PROMPTS = 50
MAX_LENGTH = 80


@dataclass(frozen=True)
class Subject:
    """A model, requests for it, and what it answers to each alone."""

    model: Decoder | NativeDecoder
    requests: list[NewRequest]
    alone: dict[str, list[TokenChoice]]


def make_requests(vocab_size: int) -> list[NewRequest]:
    """Prompts of 1 to 52 tokens, half of them with beginnings in common, and every way to choose."""
    dice = random.Random(5)
    beginnings = [tuple(dice.randrange(vocab_size) for _ in range(32)) for _ in range(3)]
    requests = []
    for index in range(NUM_PROMPTS):
        beginning = dice.choice(beginnings)[: dice.randint(1, 32)] if dice.random() < 0.5 else ()
        prompt = (*beginning, *(dice.randrange(vocab_size) for _ in range(dice.randint(1, 20))))
        sampling = SamplingParams(
            temperature=dice.choice([0.0, 0.7, 1.3]),
            top_p=dice.choice([1.0, 0.9]),
            top_k=dice.choice([0, 40]),
            presence_penalty=dice.choice([0.0, 0.5]),
            seed=index,
        )
        priority = dice.choice([-1, 0, 0, 1])
        requests.append(
            NewRequest(str(index), prompt, dice.choice([1, 6, 14]), (), sampling, num_top=5, priority=priority)
        )
    return requests


# The reference needs minutes for what native kernels do in seconds, so it gets one model here; see also test_company.
SUBJECTS = (*((name, "native") for name in MODELS), (MODELS[0], "reference"))


@pytest.fixture(scope="module", params=SUBJECTS, ids=" ".join)
def subject(request: pytest.FixtureRequest, real_model: Callable[[str], Path]) -> Iterator[Subject]:
    name, kernels = request.param
    num_threads = torch.get_num_threads()
    checkpoint = open_checkpoint(real_model(name))
    model: Decoder | NativeDecoder
    if kernels == "native":
        torch.set_num_threads(1)  # as the engine does: torch's threads would spin beside those of the kernels
        model = load_native(checkpoint, native.instruction_sets()[0], num_threads)
    else:
        model = load_decoder(checkpoint, torch.bfloat16)
    requests = make_requests(model.config.vocab_size)
    alone: dict[str, list[TokenChoice]] = {}
    for new in requests:
        alone |= answer(model, torch.bfloat16, [new], limits_for(model.config, MAX_LENGTH))[0]
    yield Subject(model, requests, alone)
    torch.set_num_threads(num_threads)


class Load:
    """A scheduler and a runner under random traffic: arrivals at any time, plans ahead of commits, and leavers."""

    def __init__(self, model: Decoder | NativeDecoder, limits: SchedulerLimits, dice: random.Random) -> None:
        self.scheduler = Scheduler(limits)
        self.runner = make_runner(model, torch.bfloat16, limits)
        self.dice = dice
        self.choices: dict[str, list[TokenChoice]] = {}
        self.plans: list[StepPlan] = []
        self.in_flight: list[StepResult] = []

    def run(self, requests: Sequence[NewRequest]) -> None:
        """Let all requests come and be answered."""
        for new in requests:
            self.choices[new.request_id] = []
            assert not self.scheduler.add(new)
            if self.dice.random() < 0.2:  # somebody who leaves again
                leaver = replace(new, request_id=f"leaver {new.request_id}", priority=-2)
                self.choices[leaver.request_id] = []
                assert not self.scheduler.add(leaver)
            for _ in range(self.dice.choice([0, 0, 0, 1, 2])):
                self.move()
            if self.dice.random() < 0.5:
                for name in self.choices:
                    if name.startswith("leaver"):
                        self.scheduler.finish(name, FinishReason.ABORTED, "test")
        while self.move():
            pass

    def move(self) -> bool:
        """Plan and compute a step, or take in the result of one; false when there is neither."""
        if len(self.in_flight) < self.dice.choice([1, 2]):
            plan = self.scheduler.plan(float(len(self.plans)))
            if plan is not None:
                self.plans.append(plan)
                self.in_flight.append(self.runner.execute(plan))
                return True
        if not self.in_flight:
            return False
        for outcome in self.scheduler.commit(self.in_flight.pop(0)):
            if not isinstance(outcome, RequestFinished):
                self.choices[outcome.request_id].append(outcome.choice)
        self.scheduler.check()
        return True


@pytest.mark.parametrize("prefix_cache", [True, False], ids=["cached", "uncached"])
@pytest.mark.parametrize(("budget", "num_tokens"), [(7, 80), (64, 112), (2048, 112)])
def test_everybody_is_answered_as_if_alone(subject: Subject, budget: int, num_tokens: int, prefix_cache: bool) -> None:
    limits = limits_for(
        subject.model.config,
        num_tokens,  # fewer than those that run would like
        block_size=16,
        max_step_tokens=budget,
        max_prompt_tokens=min(budget, 48),
        max_running=min(budget, 12),
        prefix_cache=prefix_cache,
    )
    load = Load(subject.model, limits, random.Random(budget))
    load.run(subject.requests)
    assert {name: load.choices[name] for name in subject.alone} == subject.alone
    decisions = [decision for plan in load.plans for decision in plan.decisions]
    assert any(decision.action is Action.PREEMPTED for decision in decisions)
    assert any(lookup.num_cached for plan in load.plans for lookup in plan.lookups) is prefix_cache


@pytest.mark.parametrize("kernels", [*native.instruction_sets()[:-1], "reference"])
def test_a_long_prompt_whose_windows_have_passed_is_continued_as_if_alone(
    real_model: Callable[[str], Path], kernels: str
) -> None:
    checkpoint = open_checkpoint(real_model("gemma-3-270m"))
    is_native = kernels != "reference"
    model = load_native(checkpoint, kernels, 2) if is_native else load_decoder(checkpoint, torch.bfloat16)
    assert 512 in model.config.windows
    dice = random.Random(1)
    beginning = tuple(dice.randrange(model.config.vocab_size) for _ in range(640))
    greedy = SamplingParams(temperature=0)
    requests = [NewRequest(f"{end}", (*beginning, end, 7), 6, (), greedy, num_top=5) for end in (3, 4)]
    alone = {}
    for new in requests:
        alone |= answer(model, torch.bfloat16, [new], limits_for(model.config, 672))[0]
    limits = limits_for(model.config, 2000, max_step_tokens=71, max_running=1)
    choices, plans = answer(model, torch.bfloat16, requests, limits)
    assert choices == alone
    assert [lookup.num_cached for plan in plans for lookup in plan.lookups] == [0, 640]


NUM_CLIENTS = 64
NUM_QUESTIONS = 1000


def make_words(count: int) -> list[str]:
    """Words that nobody says by chance, none of them part of another."""
    dice = random.Random(7)
    words: set[str] = set()
    while len(words) < count:
        words.add("".join(dice.choice("bdfgklmnprstvz") + dice.choice("aeiou") for _ in range(4)))
    return sorted(words)


def load_engine(path: Path) -> EngineCore:
    checkpoint = open_checkpoint(path)
    return load_core(checkpoint, "model", load_text(checkpoint)[0], EngineOptions(context=256, kernels="native"))


def test_no_word_of_one_client_is_in_the_answer_to_another(real_model: Callable[[str], Path]) -> None:
    path = real_model("smollm2-135m-instruct")
    words = make_words(NUM_QUESTIONS)
    answers: dict[str, str] = {}

    async def client(engine: Engine, own: list[str]) -> None:
        for word in own:
            question = Message(Role.USER, f"Repeat this word: {word}")
            request = GenerationRequest(word, Conversation((question,)), SamplingParams(temperature=0), max_tokens=12)
            answers[word] = "".join([delta.text async for delta in engine.submit(request)])

    async def play() -> None:
        worker = ProcessWorker(partial(load_engine, path))
        context = worker.wait().context_length
        engine = Engine(worker, Preparer(*load_text(open_checkpoint(path)), context, lambda: 0))
        await asyncio.gather(*(client(engine, words[index::NUM_CLIENTS]) for index in range(NUM_CLIENTS)))
        assert len(asyncio.all_tasks()) == 1
        await engine.drain()
        stats = engine.stats()
        assert (stats.num_running, stats.num_waiting, stats.num_free_blocks) == (0, 0, stats.num_blocks)

    asyncio.run(play())
    strangers = {word: [other for other in words if other != word and other in answers[word].lower()] for word in words}
    assert {word: found for word, found in strangers.items() if found} == {}
    assert sum(word in answers[word].lower() for word in words) > NUM_QUESTIONS / 2
