"""Answers in the shapes of OpenAI's older API, completions, whole and in pieces.

Owns the shapes. Refuses to know HTTP, clocks and engines. Invariants: the choices of a prompt stand together, prompt
after prompt; in a stream each finish reason stands in one chunk only, and a token comes with the text that it
completes.
Source: https://platform.openai.com/docs/api-reference/completions/object.
"""

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cutaway.api.completion_call import CompletionCall
from cutaway.api.json_text import Json
from cutaway.api.openai_reply import (
    FINISH_REASONS,
    MIN_LOGPROB,
    Head,
    Spell,
    head_object,
    remarks,
    usage_object,
)
from cutaway.glass.receipt import Spelling
from cutaway.types import Candidate, Delta, TokenChoice, Usage

OBJECT = "text_completion"


@dataclass(slots=True)
class ChoiceLogprobs:
    """The log-probabilities of one answer, and where in its text each token begins.

    Attributes:
        spell: how the vocabulary writes a token.
        num_top: how many alternatives to tell.
    """

    spell: Spell
    num_top: int
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace"), init=False
    )
    _decoded: str = field(default="", init=False)  # as long as it is not known whether a space was dropped
    _num_decoded: int = field(default=0, init=False)
    _num_dropped: int | None = field(default=None, init=False)
    _waiting: list[tuple[int, TokenChoice]] = field(default_factory=list, init=False)

    def take(self, delta: Delta) -> Json | None:
        """What there is to say with a delta: of all tokens since the last text, ``None`` before they have one."""
        for choice in delta.choices:
            self._waiting.append((self._num_decoded, choice))
            self._decode(self.spell(choice.token_id))
        if not (delta.text or delta.finish is not None):
            return None
        if self._num_dropped is None and delta.text:
            # The space in front of a text, which some tokenizers add and the engine takes away again.
            self._num_dropped = int(not self._decoded.startswith(delta.text) and self._decoded.startswith(" "))
            self._decoded = ""
        told = [self._describe(start, choice) for start, choice in self._waiting]
        self._waiting.clear()
        return join_logprobs(told) if told else None

    def _decode(self, spelling: Spelling) -> None:
        if not spelling.special:
            text = self._decoder.decode(spelling.content)
            self._num_decoded += len(text)
            if self._num_dropped is None:
                self._decoded += text

    def _describe(self, start: int, choice: TokenChoice) -> Json:
        chosen = Candidate(choice.token_id, choice.logprob)
        others = [other for other in choice.top[: self.num_top] if other.token_id != choice.token_id]
        names: Json = {}
        for candidate in (chosen, *others):
            name = token_name(self.spell(candidate.token_id))
            # Two tokens may be written alike.
            names[name if name not in names else f"token_id:{candidate.token_id}"] = max(candidate.logprob, MIN_LOGPROB)
        return {
            "tokens": [token_name(self.spell(choice.token_id))],
            "token_logprobs": [max(choice.logprob, MIN_LOGPROB)],
            "top_logprobs": [names],
            "text_offset": [max(start - (self._num_dropped or 0), 0)],
        }


def join_logprobs(parts: Sequence[Json]) -> Json:
    """The log-probabilities of parts of an answer as those of the whole."""
    return {name: [value for part in parts for value in part[name]] for name in parts[0]}


def token_name(spelling: Spelling) -> str:
    r"""A token as text; one that is half of a character by its bytes, as OpenAI writes it: ``bytes:\xea\xb0``."""
    if spelling.special:
        return spelling.piece
    try:
        return spelling.content.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelling.content)


@dataclass(slots=True)
class WholeCompletion:
    """Collects the deltas of answers that are given as one object; ``index`` of a delta counts through all of them.

    Attributes:
        call: what was asked.
        spell: how the vocabulary writes a token.
        head: what stands in the object.
        echoes: the texts of the prompts, if answers begin with them.
    """

    call: CompletionCall
    spell: Spell
    head: Head
    echoes: Sequence[str] = ()
    _texts: dict[int, list[str]] = field(default_factory=dict, init=False)
    _logprobs: dict[int, ChoiceLogprobs] = field(default_factory=dict, init=False)
    _told: dict[int, list[Json]] = field(default_factory=dict, init=False)
    _reasons: dict[int, str] = field(default_factory=dict, init=False)
    _usages: dict[int, Usage] = field(default_factory=dict, init=False)

    def take(self, delta: Delta) -> None:
        """Take in a delta."""
        index = delta.index
        self._texts.setdefault(index, [echo_of(self.call, self.echoes, index)]).append(delta.text)
        if self.call.num_top is not None:
            logprobs = self._logprobs.setdefault(index, ChoiceLogprobs(self.spell, self.call.num_top))
            told = logprobs.take(delta)
            self._told.setdefault(index, []).extend([] if told is None else [told])
        if delta.finish is not None:
            self._reasons[index] = FINISH_REASONS[delta.finish.reason]
            self._usages[index] = delta.finish.usage

    def complete(self, notices: Sequence[str]) -> Json:
        """The object, when every answer has ended."""
        return {
            **head_object(self.head, OBJECT),
            "choices": [self._choice(index) for index in range(num_choices(self.call))],
            "usage": completion_usage(self.call, self._usages),
            **remarks(notices),
        }

    def _choice(self, index: int) -> Json:
        logprobs = join_logprobs(self._told[index]) if self.call.num_top is not None else None
        return choice_object(index, "".join(self._texts[index]), logprobs, self._reasons[index])


@dataclass(slots=True)
class StreamedCompletion:
    """Turns the deltas of answers into chunks; attributes as in ``WholeCompletion``."""

    call: CompletionCall
    spell: Spell
    head: Head
    echoes: Sequence[str] = ()
    _notices: Sequence[str] = field(default=(), init=False)
    _logprobs: dict[int, ChoiceLogprobs] = field(default_factory=dict, init=False)
    _usages: dict[int, Usage] = field(default_factory=dict, init=False)

    def begin(self, first: Delta, notices: Sequence[str]) -> list[Json]:
        """The prompts, if answers begin with them; the first chunk of all has the notices."""
        self._notices = notices
        if not self.call.echo:
            return []
        echoes = [(index, echo_of(self.call, self.echoes, index)) for index in range(num_choices(self.call))]
        return [self._chunk([choice_object(index, echo)]) for index, echo in echoes]

    def take(self, delta: Delta) -> list[Json]:
        """The chunk of a delta; none if there is nothing to show yet."""
        logprobs = None
        if self.call.num_top is not None:
            kept = self._logprobs.setdefault(delta.index, ChoiceLogprobs(self.spell, self.call.num_top))
            logprobs = kept.take(delta)
        if not (delta.text or delta.finish is not None):
            return []
        reason = None
        if delta.finish is not None:
            self._usages[delta.index] = delta.finish.usage
            reason = FINISH_REASONS[delta.finish.reason]
        return [self._chunk([choice_object(delta.index, delta.text, logprobs, reason)])]

    def end(self) -> list[Json]:
        """What follows the last delta: the usage, if it was asked for."""
        if not self.call.include_usage:
            return []
        return [self._chunk([]) | {"usage": completion_usage(self.call, self._usages)}]

    def _chunk(self, choices: list[Json]) -> Json:
        chunk = {**head_object(self.head, OBJECT), "choices": choices, **remarks(self._notices)}
        self._notices = ()
        return chunk | {"usage": None} if self.call.include_usage else chunk


def num_choices(call: CompletionCall) -> int:
    """How many answers there are to all prompts together."""
    return sum(request.n for request in call.requests)


def echo_of(call: CompletionCall, echoes: Sequence[str], index: int) -> str:
    """What an answer begins with."""
    return echoes[index // call.requests[0].n] if call.echo else ""


def choice_object(index: int, text: str, logprobs: Json | None = None, reason: str | None = None) -> Json:
    """An answer, or a piece of one."""
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}


def completion_usage(call: CompletionCall, usages: Mapping[int, Usage]) -> Json:
    """What all answers consumed together; the answers to one prompt share it.

    Args:
        call: what was asked.
        usages: of each answer.
    """
    n = call.requests[0].n
    each = [usage_object([usages[first + copy] for copy in range(n)]) for first in range(0, num_choices(call), n)]
    cached = sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in each)
    counts = ("prompt_tokens", "completion_tokens", "total_tokens")
    totals: Json = {name: sum(usage[name] for usage in each) for name in counts}
    return totals | {"prompt_tokens_details": {"cached_tokens": cached}}
