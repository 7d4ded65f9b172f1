"""Requests of OpenAI's API in the words of ``cutaway.types``.

Owns the tables of fields: what each may be, which have no effect here and are accepted because clients always send
them, and which are known but not supported. Refuses to know HTTP and engines. Invariants: a field is understood, or
named in ``HARMLESS``, or refused with its name; ``null`` is the same as leaving it out.
Source: https://platform.openai.com/docs/api-reference/chat/create; for settings that OpenAI does not have see
``openai_sampling``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cutaway.api.content import one_of, read_content, read_turns
from cutaway.api.fields import object_of, read_fields, require, unknown_field, unsupported_field
from cutaway.api.openai_sampling import ENDING_FIELDS, SAMPLING_FIELDS
from cutaway.api.values import (
    Number,
    Reader,
    check_model,
    read_flag,
    read_object,
    read_text,
)
from cutaway.errors import InvalidValue
from cutaway.types import Conversation, GenerationRequest, Message, Role, SamplingParams

ROLES = {"system": Role.SYSTEM, "developer": Role.SYSTEM, "user": Role.USER, "assistant": Role.ASSISTANT}


@dataclass(frozen=True, slots=True)
class ChatCall:
    """A request for a chat completion.

    Attributes:
        request: what is to be generated.
        num_top: how many alternatives of each token to tell; ``None`` tells no log-probabilities.
        stream: whether the answer comes in pieces.
        include_usage: whether the last piece tells the usage.
        timings: whether the answer tells where its time went.
    """

    request: GenerationRequest
    num_top: int | None
    stream: bool
    include_usage: bool
    timings: bool = False


def chat_call(body: object, model: str, request_id: str, seed: int) -> ChatCall:
    """What a client asks for.

    Args:
        body: the JSON value that it sent.
        model: the one that answers here.
        request_id: of the request.
        seed: for a request that names none.

    Raises:
        UnknownModel: it wants another model.
        InvalidValue: something in it is unknown, not supported, of the wrong kind or outside its limits.
    """
    fields = read_fields(body, CHAT_FIELDS, "", _refuse_chat_field)
    require(fields, ("model", "messages"))
    check_model(fields["model"], model)
    sampling = {name: fields[name] for name in SAMPLING_FIELDS if name in fields}
    ending = {name: fields[name] for name in ENDING_FIELDS if name in fields}
    num_top = _num_top(fields)
    request = GenerationRequest(
        request_id=request_id,
        prompt=Conversation(fields["messages"]),
        sampling=SamplingParams(**{"seed": seed} | sampling),
        max_tokens=_max_tokens(fields),
        **ending,
        num_logprobs=num_top,
        n=fields.get("n", 1),
    )
    stream = fields.get("stream", False)
    return ChatCall(request, num_top, stream, wants_usage(fields), fields.get("cutaway", {}).get("timings", False))


def wants_usage(fields: Mapping[str, Any]) -> bool:
    """Whether the last piece of a stream is to tell the usage.

    Raises:
        InvalidValue: there are options for a stream, but no stream.
    """
    if "stream_options" in fields and not fields.get("stream", False):
        raise InvalidValue("stream_options", "they are for streams only", hint='set "stream" to true')
    include_usage: bool = fields.get("stream_options", {}).get("include_usage", False)
    return include_usage


def _max_tokens(fields: Mapping[str, Any]) -> int | None:
    old, new = fields.get("max_tokens"), fields.get("max_completion_tokens")
    if old is not None and new is not None and old != new:
        raise InvalidValue(
            "max_completion_tokens", f"{new} contradicts max_tokens, which is {old}", hint="send only one of them"
        )
    chosen: int | None = new if old is None else old
    return chosen


def _num_top(fields: Mapping[str, Any]) -> int | None:
    wanted = fields.get("logprobs", False)
    if "top_logprobs" in fields and not wanted:
        raise InvalidValue("top_logprobs", "there are none without logprobs", hint='set "logprobs" to true')
    num_top: int = fields.get("top_logprobs", 0)
    return num_top if wanted else None


def read_messages(name: str, value: object) -> tuple[Message, ...]:
    """A conversation."""
    return read_turns(name, value, MESSAGE_FIELDS, _refuse_in_message)


def _read_content(name: str, value: object) -> str:
    return read_content(name, value, PART_FIELDS, _refuse_in_message)


def _refuse_chat_field(prefix: str, name: str, value: object) -> InvalidValue | None:
    if name in SAYING_NOTHING:
        return unsupported_field(name, value, SAYING_NOTHING[name])
    return unknown_field(prefix, name, [*CHAT_FIELDS, *SAYING_NOTHING])


def _refuse_in_message(prefix: str, name: str, value: object) -> InvalidValue | None:
    if name in EMPTY_IN_MESSAGES:
        return InvalidValue(prefix + name, "it is not supported", hint="leave it out") if value else None
    return unknown_field(prefix, name, [*MESSAGE_FIELDS, *PART_FIELDS])


STREAM_FIELDS: Mapping[str, Reader] = {"include_usage": read_flag, "include_obfuscation": read_flag}
read_stream_options = object_of(STREAM_FIELDS)
# What no other server has.
CUTAWAY_FIELDS: Mapping[str, Reader] = {"timings": read_flag}


# Accepted, of the right kind only, and without effect.
HARMLESS: Mapping[str, Reader] = {
    "user": read_text,
    "metadata": read_object,
    "store": read_flag,
    "service_tier": read_text,
    "safety_identifier": read_text,
    "prompt_cache_key": read_text,
    "prompt_cache_retention": read_text,
    "parallel_tool_calls": read_flag,
}
CHAT_FIELDS: Mapping[str, Reader] = {
    "model": read_text,
    "messages": read_messages,
    **SAMPLING_FIELDS,
    **ENDING_FIELDS,
    "max_tokens": Number("max_tokens"),
    "max_completion_tokens": Number("max_tokens"),
    "n": Number("n"),
    "logprobs": read_flag,
    "top_logprobs": Number("logprobs"),
    "stream": read_flag,
    "stream_options": read_stream_options,
    "cutaway": object_of(CUTAWAY_FIELDS),
    **HARMLESS,
}
MESSAGE_FIELDS: Mapping[str, Reader] = {"role": one_of(ROLES), "content": _read_content}
PART_FIELDS: Mapping[str, Reader] = {"type": read_text, "text": read_text}
# Not supported, but what clients send that repeat an answer of OpenAI's: with nothing in it.
EMPTY_IN_MESSAGES = ("annotations", "audio", "function_call", "name", "refusal", "tool_calls", "tool_call_id")
# Known fields that are not supported, with the values that say no more than leaving them out.
SAYING_NOTHING: Mapping[str, tuple[object, ...]] = {
    "audio": (),
    "function_call": ("none",),
    "functions": ([],),
    "modalities": (["text"],),
    "prediction": (),
    "reasoning_effort": (),
    "response_format": ({"type": "text"},),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "verbosity": (),
    "web_search_options": (),
    "best_of": (1,),
    "echo": (False,),
}
