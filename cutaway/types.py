"""The vocabulary that every part shares: what is asked, what is chosen, what comes back.

Owns plain frozen data. Refuses to know tensors, files, clocks and models; imports the standard library only.
Invariant: an object that exists is valid; each checks itself against ``cutaway.limits`` when it is built.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from cutaway.errors import InvalidValue
from cutaway.limits import (
    MAX_MESSAGES,
    MAX_PROMPT_CHARS,
    MAX_PROMPT_TOKENS,
    check_breakers,
    check_logit_bias,
    check_number,
    check_salt,
    check_stop_strings,
    check_stop_token_ids,
)


class Role(StrEnum):
    """Who speaks in a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation.

    Attributes:
        role: who speaks.
        content: what is said.
        origin: where the text came from, for the glass only; it never changes the prompt.
    """

    role: Role
    content: str
    origin: str = "client"


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages, which the model's chat template makes a prompt.

    Attributes:
        messages: oldest first, at least one.

    Raises:
        InvalidValue: there are none, too many, or too many characters.
    """

    messages: tuple[Message, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.messages) <= MAX_MESSAGES:
            raise InvalidValue(
                "messages", f"{len(self.messages)} messages are outside the limits, 1 to {MAX_MESSAGES:,}"
            )
        _check_length("messages", sum(len(message.content) for message in self.messages))


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """A text that is to be continued as it stands; control tokens that are spelled out in it are control tokens.

    Attributes:
        text: whoever sends it writes the whole prompt, so it may be any text.
        add_special_tokens: put the token in front that begins a text, if the model was trained with one and the text
            does not begin with it.
        origin: where it came from, for the glass and for errors; it never changes the prompt.

    Raises:
        InvalidValue: it is too long.
    """

    text: str
    add_special_tokens: bool = True
    origin: str = "prompt"

    def __post_init__(self) -> None:
        _check_length(self.origin, len(self.text))


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """Tokens that are to be continued as they are; nothing is added.

    Attributes:
        token_ids: at least one.
        origin: as in ``TextPrompt``.

    Raises:
        InvalidValue: there are none, too many, or one that can be no id; which ids there are, the vocabulary knows.
    """

    token_ids: tuple[int, ...]
    origin: str = "prompt"

    def __post_init__(self) -> None:
        if not 1 <= len(self.token_ids) <= MAX_PROMPT_TOKENS:
            raise InvalidValue(
                self.origin, f"{len(self.token_ids):,} tokens are outside the limits, 1 to {MAX_PROMPT_TOKENS:,}"
            )
        for place, token_id in enumerate(self.token_ids):
            if isinstance(token_id, bool) or not isinstance(token_id, int) or token_id < 0:
                raise InvalidValue(self.origin, f"{token_id!r} at position {place:,} is not the id of a token")


Prompt = Conversation | TextPrompt | TokenPrompt


def _check_length(name: str, num_chars: int) -> None:
    if num_chars > MAX_PROMPT_CHARS:
        raise InvalidValue(name, f"{num_chars:,} characters are more than the limit of {MAX_PROMPT_CHARS:,}")


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen. The defaults leave the model's own distribution untouched.

    Applied in this order: logit bias, (ban of end tokens until ``min_tokens``,) penalties, DRY, temperature, top-nσ,
    min-p, top-k, typical-p, top-p, XTC, draw. That is the order of vLLM's sampler; what only llama.cpp has stands
    among its neighbours as it does there. At temperature 0 nothing after the temperature has an effect.

    Attributes:
        logit_bias: (token id, what is added to its logit) pairs, by rising id, as in OpenAI's API.
        typical_p: keep the tokens whose surprise is nearest to the entropy and that together exceed this probability.
        top_n_sigma: keep the logits that are at most so many standard deviations below the largest.
        xtc_probability: how often all tokens but the last that have at least the probability ``xtc_threshold`` are
            dropped.
        dry_multiplier, dry_base, dry_allowed_length: a token that would make a repetition of ``length`` tokens one
            longer loses ``dry_multiplier * dry_base ** (length - dry_allowed_length)``, if that is not shorter.
        dry_penalty_last_n: how many tokens of prompt and answer DRY looks at; -1 for all.
        dry_sequence_breakers: texts that a repetition does not reach across.

    Raises:
        InvalidValue: a setting is outside its limits.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    typical_p: float = 1.0
    top_n_sigma: float = 0.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    seed: int = 0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if name not in LISTED_SETTINGS:
                check_number(name, getattr(self, name))
        check_logit_bias(self.logit_bias)
        check_breakers(self.dry_sequence_breakers)


# Settings that are no single number.
LISTED_SETTINGS = ("logit_bias", "dry_sequence_breakers")


# One of some tokens, and what follows it.
BreakerSequence = tuple[frozenset[int], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class DryBreakers:
    """What ``SamplingParams.dry_sequence_breakers`` are in the tokens of a model.

    Attributes:
        single_ids: tokens that have a breaker in them.
        sequences: of two tokens or more that a breaker reaches across, those together that differ in the first only.
    """

    single_ids: frozenset[int] = frozenset()
    sequences: tuple[BreakerSequence, ...] = ()


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One question to an engine.

    Attributes:
        request_id: unique among the requests that the engine knows.
        prompt: what is to be answered or continued.
        sampling: how tokens are chosen.
        max_tokens: most tokens to generate; ``None`` means until the model ends or the context is full.
        stop: strings that end the answer; they are not part of it.
        stop_token_ids: tokens that end the answer, beside the model's own; their text is not part of it.
        min_tokens: before the answer has so many tokens, neither an end token nor one of ``stop_token_ids`` can be
            chosen, and a stop string that is complete by then ends nothing (as in vLLM).
        ignore_eos: whether the answer goes on after the model's own end tokens.
        num_logprobs: how many of the most likely tokens to report beside each chosen one; ``None`` reports none.
        num_candidates: how many candidates the glass keeps for each sampler stage of each token.
        n: how many answers; copy ``i`` counts from 0 and is drawn with the seed ``sampling.seed + i``.
        priority: who goes first when not all can run: the smaller.
        salt: only requests with the same salt share what is in the cache.

    Raises:
        InvalidValue: a value is outside its limits.
    """

    request_id: str
    prompt: Prompt
    sampling: SamplingParams = field(default_factory=SamplingParams)
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    min_tokens: int = 0
    ignore_eos: bool = False
    num_logprobs: int | None = None
    num_candidates: int = 0
    n: int = 1
    priority: int = 0
    salt: str = ""

    def __post_init__(self) -> None:
        if COPY_MARK in self.request_id:
            raise InvalidValue("request_id", f"{self.request_id!r} has a {COPY_MARK!r}, which numbers the copies")
        if self.max_tokens is not None:
            check_number("max_tokens", self.max_tokens)
        if self.num_logprobs is not None:
            check_number("logprobs", self.num_logprobs)
        check_number("num_candidates", self.num_candidates)
        check_number("n", self.n)
        check_number("priority", self.priority)
        check_salt(self.salt)
        check_stop_strings(self.stop)
        check_stop_token_ids(self.stop_token_ids)
        check_number("min_tokens", self.min_tokens)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidValue(
                "min_tokens", f"{self.min_tokens:,} are more than the limit of max_tokens, {self.max_tokens:,}"
            )


COPY_MARK = "#"


def copy_id(request_id: str, index: int) -> str:
    """The id of one copy of a request, for the scheduler and its receipt; the first one's is the request's own."""
    return f"{request_id}{COPY_MARK}{index}" if index else request_id


@dataclass(frozen=True, slots=True)
class Candidate:
    """A token that could have been chosen, with its log-probability (natural logarithm)."""

    token_id: int
    logprob: float


@dataclass(frozen=True, slots=True)
class SamplerStage:
    """What one sampler setting left over.

    Attributes:
        name: the setting, or ``"logits"`` for the model's own distribution.
        num_kept: tokens that can still be chosen after it.
        mass_removed: probability that the setting took from the tokens it dropped, before renormalizing; 0 to 1.
        top: the most likely candidates after it, renormalized, most likely first.
    """

    name: str
    num_kept: int
    mass_removed: float
    top: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class Draw:
    """How the dice fell.

    Attributes:
        uniform: the number drawn from [0, 1); ``None`` when the most likely token was simply taken (temperature 0).
        low, high: the interval of [0, 1) that belongs to the chosen token; ``low <= uniform < high``.
        probability: the chosen token's probability in the final distribution.
    """

    uniform: float | None
    low: float
    high: float
    probability: float


@dataclass(frozen=True, slots=True)
class TokenChoice:
    """One chosen token and the facts of its choice.

    Attributes:
        token_id: the chosen token.
        logprob: its log-probability under the model's untouched logits.
        rank: its place in the untouched distribution; 1 is the most likely.
        top: the most likely tokens of the untouched distribution, most likely first.
        draw: how the dice fell.
        stages: what each sampler setting left over, in the order of application; empty unless candidates were
            asked for.
    """

    token_id: int
    logprob: float
    rank: int
    top: tuple[Candidate, ...]
    draw: Draw
    stages: tuple[SamplerStage, ...] = ()


class FinishReason(StrEnum):
    """The one terminal outcome of a request."""

    STOP = "stop"
    LENGTH = "length"
    ABORTED = "aborted"
    REJECTED = "rejected"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Usage:
    """What a request consumed, in tokens. Cached tokens are prompt tokens that did not have to be computed."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Prompt and completion together."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class Finish:
    """How a request ended, and what ended it: an end token's text, a stop string, a limit, or the client.

    Attributes:
        reason: which kind of end.
        cause: what ended it, in words.
        usage: what the request consumed.
        stop: the stop string that ended it, if one did.
    """

    reason: FinishReason
    cause: str
    usage: Usage
    stop: str | None = None


@dataclass(frozen=True, slots=True)
class Delta:
    """What an engine has to say about a request since the last delta.

    Attributes:
        text: text to append to the answer; may be empty while a character or a stop string is incomplete.
        choices: the tokens chosen since the last delta.
        notices: what was defaulted or changed about the request, in words; at most in the first delta.
        finish: set in the last delta of each copy, and only there.
        index: which copy of the request; 0 without copies.
        usage: what the request has consumed so far; set where a copy's first token is, and only there.
    """

    text: str
    choices: tuple[TokenChoice, ...] = ()
    notices: tuple[str, ...] = ()
    finish: Finish | None = None
    index: int = 0
    usage: Usage | None = None
