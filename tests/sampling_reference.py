"""A slow sampler in plain Python that follows the definitions word for word, and the rows that it is compared on."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from cutaway.sampling.order import Logits
from cutaway.sampling.penalties import TokenCounts
from cutaway.sampling.random import Purpose, uniform
from cutaway.sampling.sampler import choose
from cutaway.types import SamplingParams, TokenChoice

ALL = 10**6  # more candidates than any row here has tokens


@dataclass(frozen=True)
class SlowStage:
    name: str
    probabilities: dict[int, float]  # most likely first
    mass_removed: float


def slow_softmax(logits: list[float], temperature: float = 1.0) -> dict[int, float]:
    best = max(logits)
    weights = {i: math.exp((logit - best) / temperature) for i, logit in enumerate(logits) if logit > -math.inf}
    total = math.fsum(weights.values())
    in_order = sorted(weights, key=lambda i: (-logits[i], i))
    return {i: weights[i] / total for i in in_order}


def slow_cut(name: str, before: dict[int, float], kept: list[int]) -> SlowStage:
    mass = math.fsum(before[i] for i in kept)
    return SlowStage(name, {i: before[i] / mass for i in kept}, 1 - mass)


def slow_choose_from(
    name: str, before: dict[int, float], kept: list[int], logits: list[float], temperature: float
) -> SlowStage:
    """Like ``slow_cut``, for settings that may leave only tokens whose shares float64 can hardly hold."""
    allowed = [logit if i in kept else -math.inf for i, logit in enumerate(logits)]
    return SlowStage(name, slow_softmax(allowed, temperature), 1 - math.fsum(before[i] for i in kept))


def slow_penalties(logits: list[float], params: SamplingParams, prompt: list[int], output: list[int]) -> list[float]:
    after = []
    for i, logit in enumerate(logits):
        if i in prompt or i in output:
            logit = logit / params.repetition_penalty if logit > 0 else logit * params.repetition_penalty
        logit -= params.frequency_penalty * output.count(i)
        logit -= params.presence_penalty if i in output else 0
        after.append(float(np.float32(logit)))
    return after


def slow_dry(tokens: list[int], params: SamplingParams, breakers: list[tuple[int, ...]]) -> dict[int, float]:
    """What each token loses, by looking everywhere."""
    last_n = params.dry_penalty_last_n
    window = tokens if last_n < 0 else tokens[len(tokens) - min(last_n, len(tokens)) :]
    limit = len(window)
    for start in reversed(range(len(window))):
        ends = [start + len(each) for each in breakers if tuple(window[start : start + len(each)]) == each]
        if ends:
            limit = len(window) - max(ends)
            break
    losses: dict[int, float] = {}
    for at in range(1, len(window)):
        length = 0
        while length < min(limit, at) and window[at - 1 - length] == window[-1 - length]:
            length += 1
        if length >= params.dry_allowed_length and (window[at],) not in breakers:
            loss = params.dry_multiplier * params.dry_base ** min(length - params.dry_allowed_length, 60)
            losses[window[at]] = max(loss, losses.get(window[at], 0))
    return losses


def slow_typical(now: dict[int, float], level: float) -> list[int]:
    entropy = -math.fsum(p * math.log(p) for p in now.values() if p > 0)
    distances = {i: abs(-math.log(p) - entropy) if p > 0 else math.inf for i, p in now.items()}
    kept: list[int] = []
    for i in sorted(now, key=lambda i: (distances[i], i)):
        kept.append(i)
        if math.fsum(now[i] for i in kept) > level:
            break
    return sorted(kept, key=list(now).index)


def slow_stages(
    logits: list[float],
    params: SamplingParams,
    prompt: list[int] | None = None,
    output: list[int] | None = None,
    banned: tuple[int, ...] = (),
    breakers: list[tuple[int, ...]] | None = None,
    position: int = 0,
) -> list[SlowStage]:
    now = slow_softmax(logits)
    stages = [SlowStage("logits", now, 0.0)]
    if params.logit_bias:
        biases = dict(params.logit_bias)
        logits = [float(np.float32(logit + biases.get(i, 0))) for i, logit in enumerate(logits)]
        now = slow_softmax(logits)
        stages.append(SlowStage("logit_bias", now, 0.0))
    if banned:
        logits = [-math.inf if i in banned else logit for i, logit in enumerate(logits)]
        stages.append(slow_cut("min_tokens", now, [i for i in now if i not in banned]))
        now = stages[-1].probabilities
    if (params.repetition_penalty, params.presence_penalty, params.frequency_penalty) != (1, 0, 0):
        logits = slow_penalties(logits, params, prompt or [], output or [])
        now = slow_softmax(logits)
        stages.append(SlowStage("penalties", now, 0.0))
    if params.dry_multiplier and params.dry_penalty_last_n:
        losses = slow_dry([*(prompt or []), *(output or [])], params, breakers or [])
        logits = [float(np.float32(logit - losses.get(i, 0))) for i, logit in enumerate(logits)]
        now = slow_softmax(logits)
        stages.append(SlowStage("dry", now, 0.0))
    if params.temperature == 0:
        return [*stages, slow_cut("temperature", now, [next(iter(now))])]
    if params.temperature != 1:
        now = slow_softmax(logits, params.temperature)
        stages.append(SlowStage("temperature", now, 0.0))
    if params.top_n_sigma > 0:
        finite = [logit for logit in logits if logit > -math.inf]
        mean = math.fsum(finite) / len(finite)
        sigma = math.sqrt(math.fsum((logit - mean) ** 2 for logit in finite) / len(finite))
        kept = [i for i in now if logits[i] >= max(finite) - params.top_n_sigma * sigma]
        stages.append(slow_cut("top_n_sigma", now, kept))
        now = stages[-1].probabilities
    if params.min_p:
        best = max(now.values())
        stages.append(slow_cut("min_p", now, [i for i in now if now[i] / best >= params.min_p]))
    now = stages[-1].probabilities
    if params.top_k:
        stages.append(slow_cut("top_k", now, list(now)[: params.top_k]))
    now = stages[-1].probabilities
    if params.typical_p < 1:
        kept = slow_typical(now, params.typical_p)
        stages.append(slow_choose_from("typical_p", now, kept, logits, params.temperature))
    now = stages[-1].probabilities
    if params.top_p < 1:
        kept = []
        while math.fsum(now[i] for i in kept) < params.top_p and len(kept) < len(now):
            kept.append(list(now)[len(kept)])
        stages.append(slow_cut("top_p", now, kept))
        now = stages[-1].probabilities
    if params.xtc_probability:
        top = [i for i in now if now[i] >= params.xtc_threshold]
        applies = uniform(params.seed, position, Purpose.XTC) < params.xtc_probability
        kept = [i for i in now if not applies or i not in top[:-1]]
        stages.append(slow_choose_from("xtc", now, kept, logits, params.temperature))
    return stages


def row(values: list[float] | np.ndarray) -> Logits:
    return np.array(values, dtype=np.float32)


def pick(logits: Logits, position: int = 0, **settings: Any) -> TokenChoice:
    """One choice with everything reported."""
    return choose(logits, SamplingParams(**settings), TokenCounts(), position, num_top=ALL, num_candidates=ALL)


def normal_row(num_tokens: int, seed: int, scale: float = 2.0) -> Logits:
    return row(np.random.default_rng(seed).normal(0, scale, num_tokens))


ROWS = {
    "random": normal_row(50, 1),
    "random, larger than the first sorted prefix": normal_row(700, 2, scale=1.0),
    "flat": row([0.5] * 10),
    "ties": row([1.0, 2.0, 1.0, 2.0, 0.0, 2.0, 1.0, 0.0, -0.0, 1.0]),
    "one token": row([3.0]),
    "one token left": row([-math.inf, -math.inf, 1.5, -math.inf]),
    "some banned": row([0.0, -math.inf, 1.0, 1.0, -math.inf, -3.0]),
    "huge": row([3e38, -3e38, 3e38, 0.0]),
    "huge and close": row([10_000.0, 9_999.5, 9_999.0, -10_000.0]),
    "weights at the end of float64": row([0.0, 0.0, 0.0, -745.0, -740.0, -800.0]),
    "peaked": row([30.0, 0.0, 0.0, -5.0, 1.0]),
}
SETTINGS = [
    {},
    {"temperature": 2.0},
    {"temperature": 0.3},
    {"temperature": 1e-3},
    {"temperature": 0.0},
    {"temperature": 0.0, "top_k": 3, "top_p": 0.5, "min_p": 0.5},
    {"top_k": 1},
    {"top_k": 3},
    {"top_k": 1_000_000},
    {"top_p": 1e-9},
    {"top_p": 0.5},
    {"top_p": 0.9},
    {"top_p": 1 - 1e-9},
    {"min_p": 1e-9},
    {"min_p": 0.1},
    {"min_p": 1.0},
    {"temperature": 0.7, "top_k": 4, "top_p": 0.8},
    {"temperature": 1.5, "min_p": 0.02, "top_k": 6, "top_p": 0.95},
    {"repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": -0.25},
    {"repetition_penalty": 1.3, "frequency_penalty": 0.5, "temperature": 0.8, "min_p": 0.01, "top_k": 5, "top_p": 0.9},
    {"repetition_penalty": 2.0, "temperature": 0.0},
    {"logit_bias": ((0, 1.25),)},
    {"logit_bias": ((0, -100.0),), "temperature": 0.0},
    {"top_n_sigma": 1.0},
    {"top_n_sigma": -1.0},
    {"typical_p": 0.37},
    {"typical_p": 1e-9, "top_k": 5},
    {"xtc_probability": 1.0, "xtc_threshold": 0.05},
    {"xtc_probability": 0.5, "xtc_threshold": 0.07, "seed": 6},
    {"temperature": 1.3, "top_n_sigma": 2.0, "top_k": 30, "typical_p": 0.9, "top_p": 0.97, "xtc_probability": 1.0},
    {"logit_bias": ((0, 3.0),), "repetition_penalty": 1.3, "temperature": 0.7, "top_k": 4, "top_p": 0.8},
]
PROMPT, OUTPUT = [0, 0], [0]  # every row has token 0


def finite(probabilities: dict[int, float]) -> dict[int, float]:
    """Those that still are above what float64 holds; the rest can have a finite logprob, but no weight."""
    return {i: p for i, p in probabilities.items() if p > 0}
