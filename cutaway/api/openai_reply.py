"""Answers in the shapes of OpenAI's chat completions, whole and in pieces.

Owns the shapes. Refuses to know HTTP, clocks and engines. Invariants: in a stream each choice begins with the role and
ends with its finish reason, which stands in one chunk only; a token's bytes are exactly what it adds to the text.
Source: https://platform.openai.com/docs/api-reference/chat/object and .../chat/streaming.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cutaway.api.json_text import Json
from cutaway.api.openai import ChatCall
from cutaway.glass.receipt import ModelFacts, Spelling
from cutaway.types import Candidate, Delta, Finish, FinishReason, TokenChoice, Usage

Spell = Callable[[int], Spelling]

OWNER = "cutaway"
FINGERPRINT_CHARS = 16
# What OpenAI says instead of a logarithm of nothing, which JSON has no word for.
MIN_LOGPROB = -9999.0
FINISH_REASONS: Mapping[FinishReason, str] = {FinishReason.STOP: "stop", FinishReason.LENGTH: "length"}


@dataclass(frozen=True, slots=True)
class Head:
    """What stands in every object of an answer.

    Attributes:
        reply_id: of the answer.
        created: seconds since 1970.
        model: that answers.
        fingerprint: of the model's files.
    """

    reply_id: str
    created: int
    model: str
    fingerprint: str


def make_head(model: ModelFacts, reply_id: str, created: int) -> Head:
    """The head of an answer that a model gives."""
    return Head(reply_id, created, model.name, f"fp_{model.fingerprint[:FINGERPRINT_CHARS]}")


def model_object(name: str, created: int) -> Json:
    """A model, as ``/v1/models/{id}`` tells of it."""
    return {"id": name, "object": "model", "created": created, "owned_by": OWNER}


def model_list(models: Sequence[Json]) -> Json:
    """All models."""
    return {"object": "list", "data": list(models)}


@dataclass(slots=True)
class WholeAnswer:
    """Collects the deltas of an answer that is given as one object.

    Attributes:
        call: what was asked.
        spell: how the vocabulary writes a token.
        head: what stands in the object.
        timings: tells where the time went, once every copy has ended; ``None`` if nobody wants to know.
    """

    call: ChatCall
    spell: Spell
    head: Head
    timings: Callable[[], Json] | None = None
    _texts: dict[int, list[str]] = field(default_factory=dict, init=False)
    _tokens: dict[int, list[Json]] = field(default_factory=dict, init=False)
    _finishes: dict[int, Finish] = field(default_factory=dict, init=False)

    def take(self, delta: Delta) -> None:
        """Take in a delta."""
        self._texts.setdefault(delta.index, []).append(delta.text)
        if self.call.num_top is not None:
            tokens = self._tokens.setdefault(delta.index, [])
            tokens += [_token(choice, self.spell, self.call.num_top) for choice in delta.choices]
        if delta.finish is not None:
            self._finishes[delta.index] = delta.finish

    def complete(self, notices: Sequence[str]) -> Json:
        """The object, when every copy has ended."""
        choices = [self._choice(index) for index in range(self.call.request.n)]
        usage = usage_object([self._finishes[index].usage for index in range(self.call.request.n)])
        return {
            **head_object(self.head, "chat.completion"),
            "choices": choices,
            "usage": usage,
            **remarks(notices, self.timings),
        }

    def _choice(self, index: int) -> Json:
        return {
            "index": index,
            "message": {
                "role": "assistant",
                "content": "".join(self._texts[index]),
                "refusal": None,
                "annotations": [],
            },
            "logprobs": _logprobs(self._tokens.get(index)),
            "finish_reason": FINISH_REASONS[self._finishes[index].reason],
        }


@dataclass(slots=True)
class StreamedAnswer:
    """Turns the deltas of an answer into chunks.

    Attributes:
        call: what was asked.
        spell: how the vocabulary writes a token.
        head: what stands in every chunk.
        timings: tells where the time went, once every copy has ended; ``None`` if nobody wants to know.
    """

    call: ChatCall
    spell: Spell
    head: Head
    timings: Callable[[], Json] | None = None
    _usages: dict[int, Usage] = field(default_factory=dict, init=False)

    def begin(self, first: Delta, notices: Sequence[str]) -> list[Json]:
        """Who speaks, for each choice; the first chunk has the notices."""
        role: Json = {"role": "assistant", "content": "", "refusal": None}
        chunks = [self._chunk([_piece(index, role)]) for index in range(self.call.request.n)]
        chunks[0] |= remarks(notices)
        return chunks

    def take(self, delta: Delta) -> list[Json]:
        """The chunks of a delta; none if there is nothing to show yet."""
        chunks = []
        num_top = self.call.num_top
        tokens = None if num_top is None else [_token(choice, self.spell, num_top) for choice in delta.choices]
        if delta.text or tokens:
            chunks.append(self._chunk([_piece(delta.index, {"content": delta.text}, tokens)]))
        if delta.finish is not None:
            self._usages[delta.index] = delta.finish.usage
            reason = FINISH_REASONS[delta.finish.reason]
            chunks.append(self._chunk([_piece(delta.index, {}, finish_reason=reason)]))
        return chunks

    def end(self) -> list[Json]:
        """What follows the last delta: the usage and the timings, if they were asked for."""
        told = remarks((), self.timings)
        if self.call.include_usage:
            told["usage"] = usage_object([self._usages[index] for index in range(self.call.request.n)])
        return [self._chunk([]) | told] if told else []

    def _chunk(self, choices: list[Json]) -> Json:
        chunk = {**head_object(self.head, "chat.completion.chunk"), "choices": choices}
        return chunk | {"usage": None} if self.call.include_usage else chunk


def usage_object(usages: Sequence[Usage]) -> Json:
    """What all copies of a request consumed together; they share one prompt."""
    first = usages[0]
    num_completion = sum(usage.completion_tokens for usage in usages)
    return {
        "prompt_tokens": first.prompt_tokens,
        "completion_tokens": num_completion,
        "total_tokens": first.prompt_tokens + num_completion,
        "prompt_tokens_details": {"cached_tokens": first.cached_tokens},
    }


def head_object(head: Head, kind: str) -> Json:
    """What every object of an answer begins with; ``kind`` is what it is."""
    return {
        "id": head.reply_id,
        "object": kind,
        "created": head.created,
        "model": head.model,
        "system_fingerprint": head.fingerprint,
    }


def remarks(notices: Sequence[str], timings: Callable[[], Json] | None = None) -> Json:
    """What no other server says: what was changed about the request, and timings; nothing if there is neither."""
    told: Json = {"notices": list(notices)} if notices else {}
    if timings is not None:
        told["timings"] = timings()
    return {"cutaway": told} if told else {}


def _piece(index: int, delta: Json, tokens: list[Json] | None = None, finish_reason: str | None = None) -> Json:
    return {"index": index, "delta": delta, "logprobs": _logprobs(tokens), "finish_reason": finish_reason}


def _logprobs(tokens: list[Json] | None) -> Json | None:
    return None if tokens is None else {"content": tokens, "refusal": None}


def _token(choice: TokenChoice, spell: Spell, num_top: int) -> Json:
    chosen = _candidate(Candidate(choice.token_id, choice.logprob), spell)
    return chosen | {"top_logprobs": [_candidate(other, spell) for other in choice.top[:num_top]]}


def _candidate(candidate: Candidate, spell: Spell) -> Json:
    """A token; control tokens, which add no text, have no bytes."""
    spelling = spell(candidate.token_id)
    return {
        "token": spelling.piece if spelling.special else spelling.content.decode("utf-8", "replace"),
        "bytes": None if spelling.special else list(spelling.content),
        "logprob": max(candidate.logprob, MIN_LOGPROB),
    }
