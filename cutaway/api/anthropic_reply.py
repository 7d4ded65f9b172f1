"""Answers in the shapes of Anthropic's Messages API, whole and in pieces.

Owns the shapes. Refuses to know HTTP, clocks and engines. Invariants: an answer is one block of text; a stream begins
with ``message_start``, ends with ``message_stop`` and has one stop reason.
Source: https://platform.claude.com/docs/en/api/messages, .../build-with-claude/streaming and .../prompt-caching.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from cutaway.api.anthropic import MessageCall
from cutaway.api.json_text import Json
from cutaway.errors import InvalidValue
from cutaway.types import Delta, Finish, FinishReason, Usage

INDEX = 0  # of the only block of an answer


def model_object(name: str, created: int, context_length: int) -> Json:
    """A model, as ``/v1/models/{id}`` tells of it; ``created`` is in seconds since 1970."""
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": datetime.fromtimestamp(created, UTC).isoformat().replace("+00:00", "Z"),
        "lifecycle": "active",
        "max_input_tokens": context_length,
    }


def model_page(model: Json, before_id: str | None, after_id: str | None) -> Json:
    """The page of the list of all models, of which there is one.

    Args:
        model: that one.
        before_id: the model that the page stands before, if the client names one.
        after_id: the model that the page stands behind, if the client names one.

    Raises:
        InvalidValue: there is no such model.
    """
    for name, value in (("before_id", before_id), ("after_id", after_id)):
        if value is not None and value != model["id"]:
            raise InvalidValue(name, f"there is no model {value[:80]!r}", hint=f"there is {model['id']!r}")
    data = [model] if before_id is None and after_id is None else []
    return {
        "data": data,
        "has_more": False,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
    }


@dataclass(slots=True)
class WholeMessage:
    """Collects the deltas of an answer that is given as one object.

    Attributes:
        call: what was asked.
    """

    call: MessageCall
    _texts: list[str] = field(default_factory=list, init=False)
    _finish: Finish | None = field(default=None, init=False)

    def take(self, delta: Delta) -> None:
        """Take in a delta."""
        self._texts.append(delta.text)
        self._finish = delta.finish

    def complete(self, notices: Sequence[str]) -> Json:
        """The object, when the answer has ended."""
        assert self._finish is not None
        usage = usage_object(self._finish.usage)
        content = [_block("".join(self._texts))]
        return _message(self.call, content, usage, notices) | _stop(self._finish, self.call.max_tokens)


@dataclass(slots=True)
class StreamedMessage:
    """Turns the deltas of an answer into the values of events.

    Attributes:
        call: what was asked.
    """

    call: MessageCall
    _finish: Finish | None = field(default=None, init=False)

    def begin(self, first: Delta, notices: Sequence[str]) -> list[Json]:
        """The message without its text; the first delta knows what the prompt consumed."""
        assert first.usage is not None
        message = _message(self.call, [], usage_object(first.usage), notices)
        return [
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": INDEX, "content_block": _block("")},
            {"type": "ping"},
        ]

    def take(self, delta: Delta) -> list[Json]:
        """The text of a delta; nothing if there is nothing to show yet."""
        self._finish = delta.finish
        if not delta.text:
            return []
        return [
            {"type": "content_block_delta", "index": INDEX, "delta": {"type": "text_delta", "text": delta.text}},
        ]

    def end(self) -> list[Json]:
        """How the answer ended, and what it consumed."""
        assert self._finish is not None
        stop = _stop(self._finish, self.call.max_tokens)
        return [
            {"type": "content_block_stop", "index": INDEX},
            {"type": "message_delta", "delta": stop, "usage": usage_object(self._finish.usage)},
            {"type": "message_stop"},
        ]


def usage_object(usage: Usage) -> Json:
    """What a request consumed; the prompt is the sum of the first three.

    Nothing is ever written to the cache because a request marked it, so ``cache_creation_input_tokens`` is 0: what was
    not read from the cache is input.
    """
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    }


def _message(call: MessageCall, content: list[Json], usage: Json, notices: Sequence[str]) -> Json:
    message: Json = {
        "id": call.request.request_id,
        "type": "message",
        "role": "assistant",
        "model": call.model,
        "content": content,
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    return message | {"cutaway": {"notices": list(notices)}} if notices else message


def _block(text: str) -> Json:
    return {"type": "text", "text": text}


def _stop(finish: Finish, max_tokens: int) -> Json:
    """Why an answer ended: a limit was the client's, or the context's if that came first."""
    if finish.stop is not None:
        reason = "stop_sequence"
    elif finish.reason is FinishReason.STOP:
        reason = "end_turn"
    elif finish.usage.completion_tokens < max_tokens:
        reason = "model_context_window_exceeded"
    else:
        reason = "max_tokens"
    return {"stop_reason": reason, "stop_sequence": finish.stop}
