"""Requests of OpenAI's API in the words of ``cutaway.types``.

Owns the tables of fields: what each may be, which have no effect here and are accepted because clients always send
them, and which are known but not supported. Refuses to know HTTP and engines. Invariants: a field is understood, or
named in ``HARMLESS``, or refused with its name; ``null`` is the same as leaving it out.
Source: https://platform.openai.com/docs/api-reference/chat/create, and for ``top_k``, ``min_p`` and
``repetition_penalty`` the names of vLLM.
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cutaway.api.openai_values import (
    number,
    read_flag,
    read_object,
    read_stop,
    read_text,
    refuse_kind,
    shown,
)
from cutaway.errors import InvalidValue, UnknownModel
from cutaway.limits import MAX_MESSAGES
from cutaway.types import GenerationRequest, Message, Role, SamplingParams

# More than one part of a text: between them, as vLLM and llama.cpp do.
PART_SEPARATOR = "\n"
ROLES = {"system": Role.SYSTEM, "developer": Role.SYSTEM, "user": Role.USER, "assistant": Role.ASSISTANT}
SAMPLING = tuple(SamplingParams.__slots__)


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
    fields = _read(body, CHAT_FIELDS, "", _refuse_chat_field)
    for name in ("model", "messages"):
        if name not in fields:
            raise InvalidValue(name, "it is missing")
    if fields["model"] != model:
        raise UnknownModel(f"the model {fields['model'][:80]!r} does not exist here", hint=f"there is {model!r}")
    sampling = {name: fields[name] for name in SAMPLING if name in fields}
    num_top = _num_top(fields)
    request = GenerationRequest(
        request_id=request_id,
        messages=fields["messages"],
        sampling=SamplingParams(**{"seed": seed} | sampling),
        max_tokens=_max_tokens(fields),
        stop=fields.get("stop", ()),
        num_logprobs=num_top,
        n=fields.get("n", 1),
    )
    stream = fields.get("stream", False)
    if "stream_options" in fields and not stream:
        raise InvalidValue("stream_options", "they are for streams only", hint='set "stream" to true')
    include_usage = fields.get("stream_options", {}).get("include_usage", False)
    return ChatCall(request, num_top, stream, include_usage, fields.get("cutaway", {}).get("timings", False))


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
    if not isinstance(value, list):
        raise refuse_kind(name, value, "a list of messages")
    if not 1 <= len(value) <= MAX_MESSAGES:
        raise InvalidValue(name, f"{len(value):,} messages are outside the limits, 1 to {MAX_MESSAGES:,}")
    return tuple(_read_message(f"{name}[{index}]", message) for index, message in enumerate(value))


def _read_message(name: str, value: object) -> Message:
    fields = _read(value, MESSAGE_FIELDS, f"{name}.", _refuse_inner_field)
    for part in ("role", "content"):
        if part not in fields:
            raise InvalidValue(f"{name}.{part}", "it is missing")
    return Message(fields["role"], fields["content"])


def _read_role(name: str, value: object) -> Role:
    role = ROLES.get(value) if isinstance(value, str) else None
    if role is None:
        raise InvalidValue(name, f"{shown(value)} is none of {', '.join(ROLES)}")
    return role


def _read_content(name: str, value: object) -> str:
    """A text, or the text of several parts."""
    if isinstance(value, str):
        return read_text(name, value)
    if not isinstance(value, list) or not value:
        raise refuse_kind(name, value, "a text or a list of parts with text")
    return PART_SEPARATOR.join(_read_part(f"{name}[{index}]", part) for index, part in enumerate(value))


def _read_part(name: str, value: object) -> str:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind != "text" and isinstance(kind, str):
        raise InvalidValue(f"{name}.type", f"{shown(kind)} is not supported, only text")
    fields = _read(value, PART_FIELDS, f"{name}.", _refuse_inner_field)
    for part in ("type", "text"):
        if part not in fields:
            raise InvalidValue(f"{name}.{part}", "it is missing")
    text: str = fields["text"]
    return text


def _read_stream_options(name: str, value: object) -> dict[str, Any]:
    return _read(value, STREAM_FIELDS, f"{name}.", _refuse_inner_field)


def _read_cutaway(name: str, value: object) -> dict[str, Any]:
    return _read(value, CUTAWAY_FIELDS, f"{name}.", _refuse_inner_field)


def _read(
    value: object, known: Mapping[str, "Reader"], prefix: str, refuse: Callable[[str, str, object], InvalidValue | None]
) -> dict[str, Any]:
    """The fields of an object, each as its reader understands it, without those that are ``null``.

    Args:
        value: the object.
        known: a reader for each field that may be there.
        prefix: of the names of its fields in errors.
        refuse: what to raise for any other field (prefix, name, value); ``None`` if it says nothing as it is.
    """
    if not isinstance(value, dict):
        raise refuse_kind(prefix.rstrip(".") or "body", value, "an object")
    fields = {}
    for name, part in value.items():
        if name in known:
            if part is not None:
                fields[name] = known[name](prefix + name, part)
        elif (error := refuse(prefix, name, part)) is not None:
            raise error
    return fields


def _refuse_chat_field(prefix: str, name: str, value: object) -> InvalidValue | None:
    if name in SAYING_NOTHING and (value is None or value in SAYING_NOTHING[name]):
        return None
    if name in SAYING_NOTHING:
        return InvalidValue(name, f"{shown(value)} is not supported", hint="leave it out")
    return _unknown(prefix, name, [*CHAT_FIELDS, *SAYING_NOTHING])


def _refuse_inner_field(prefix: str, name: str, value: object) -> InvalidValue | None:
    is_messages = prefix.startswith("messages")
    if is_messages and name in EMPTY_IN_MESSAGES:
        return InvalidValue(prefix + name, "it is not supported", hint="leave it out") if value else None
    if is_messages:
        return _unknown(prefix, name, [*MESSAGE_FIELDS, *PART_FIELDS])
    return _unknown(prefix, name, [*(CUTAWAY_FIELDS if prefix.startswith("cutaway") else STREAM_FIELDS)])


def _unknown(prefix: str, name: str, known: list[str]) -> InvalidValue:
    near = difflib.get_close_matches(name[:80], known, n=1)
    hint = f"did you mean {near[0]}?" if near else "leave it out"
    return InvalidValue(prefix + name[:80], "this field is not known", hint=hint)


Reader = Callable[[str, object], Any]

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
    **{name: number(name) for name in SAMPLING},
    "stop": read_stop,
    "max_tokens": number("max_tokens"),
    "max_completion_tokens": number("max_tokens"),
    "n": number("n"),
    "logprobs": read_flag,
    "top_logprobs": number("logprobs"),
    "stream": read_flag,
    "stream_options": _read_stream_options,
    "cutaway": _read_cutaway,
    **HARMLESS,
}
STREAM_FIELDS: Mapping[str, Reader] = {"include_usage": read_flag, "include_obfuscation": read_flag}
# What no other server has.
CUTAWAY_FIELDS: Mapping[str, Reader] = {"timings": read_flag}
MESSAGE_FIELDS: Mapping[str, Reader] = {"role": _read_role, "content": _read_content}
PART_FIELDS: Mapping[str, Reader] = {"type": read_text, "text": read_text}
# Not supported, but what clients send that repeat an answer of OpenAI's: with nothing in it.
EMPTY_IN_MESSAGES = ("annotations", "audio", "function_call", "name", "refusal", "tool_calls", "tool_call_id")
# Known fields that are not supported, with the values that say no more than leaving them out.
SAYING_NOTHING: Mapping[str, tuple[object, ...]] = {
    "audio": (),
    "function_call": ("none",),
    "functions": ([],),
    "logit_bias": ({},),
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
    "ignore_eos": (False,),
    "min_tokens": (0,),
    "stop_token_ids": ([],),
}
