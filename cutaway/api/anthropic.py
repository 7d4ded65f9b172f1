"""Requests of Anthropic's Messages API in the words of ``cutaway.types``.

Owns the tables of fields: what each may be, which have no effect here and are accepted because clients always send
them, and which are known but not supported. Refuses to know HTTP and engines. Invariants: a field is understood, or
named in ``HARMLESS`` or ``HARMLESS_IN_BLOCKS``, or refused with its name; ``null`` is the same as leaving it out.
Source: https://platform.claude.com/docs/en/api/messages and the types of the ``anthropic`` package.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cutaway.api.content import PART_SEPARATOR, one_of, read_content, read_turns
from cutaway.api.fields import read_fields, require, unknown_field, unsupported_field
from cutaway.api.values import (
    Number,
    Reader,
    check_model,
    read_flag,
    read_object,
    read_stop_list,
    read_text,
)
from cutaway.errors import InvalidValue
from cutaway.types import Conversation, GenerationRequest, Message, Role, SamplingParams

ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}
SAMPLING = ("temperature", "top_p", "top_k")


@dataclass(frozen=True, slots=True)
class MessageCall:
    """A request for a message.

    Attributes:
        request: what is to be generated; its id is that of the message.
        max_tokens: of the request, as the client sent it.
        model: that answers.
        stream: whether the answer comes in pieces.
    """

    request: GenerationRequest
    max_tokens: int
    model: str
    stream: bool


def message_call(body: object, model: str, message_id: str, seed: int) -> MessageCall:
    """What a client asks for.

    Args:
        body: the JSON value that it sent.
        model: the one that answers here.
        message_id: of the answer.
        seed: for the sampler; this API has no field for it.

    Raises:
        UnknownModel: it wants another model.
        InvalidValue: something in it is unknown, not supported, of the wrong kind or outside its limits.
    """
    fields = _read_body(body, model, ("max_tokens",))
    sampling = {name: fields[name] for name in SAMPLING if name in fields}
    request = GenerationRequest(
        request_id=message_id,
        prompt=_conversation(fields),
        sampling=SamplingParams(**{"seed": seed} | sampling),
        max_tokens=fields["max_tokens"],
        stop=fields.get("stop_sequences", ()),
    )
    return MessageCall(request, fields["max_tokens"], model, fields.get("stream", False))


def counted_messages(body: object, model: str) -> Conversation:
    """The conversation of a request whose tokens are to be counted.

    Args:
        body: the JSON value that a client sent: the same as for a message, but ``max_tokens`` may be missing.
        model: the one that answers here.

    Raises:
        UnknownModel, InvalidValue: as ``message_call``.
    """
    return _conversation(_read_body(body, model, ()))


def _read_body(body: object, model: str, required: tuple[str, ...]) -> dict[str, Any]:
    fields = read_fields(body, MESSAGE_FIELDS, "", _refuse_field)
    require(fields, ("model", "messages", *required))
    check_model(fields["model"], model)
    return fields


def _conversation(fields: Mapping[str, Any]) -> Conversation:
    """The system prompt and the turns.

    Turns of the same role that follow each other are one, as with Anthropic. The last one cannot be the assistant's:
    it would have to be continued without a token between, and a chat template ends it.
    """
    system = fields.get("system", "")
    turns = _merge([*([Message(Role.SYSTEM, system)] if system else []), *fields["messages"]])
    if turns[-1].role is Role.ASSISTANT:
        raise InvalidValue(
            "messages",
            "the last one is the assistant's, and the beginning of an answer cannot be continued here",
            hint="end with a message of the user",
        )
    return Conversation(turns)


def _merge(messages: Sequence[Message]) -> tuple[Message, ...]:
    turns: list[tuple[Role, list[str]]] = []
    for message in messages:
        if turns and turns[-1][0] is message.role:
            turns[-1][1].append(message.content)
        else:
            turns.append((message.role, [message.content]))
    return tuple(Message(role, PART_SEPARATOR.join(contents)) for role, contents in turns)


def _read_messages(name: str, value: object) -> tuple[Message, ...]:
    return read_turns(name, value, TURN_FIELDS, _refuse_in_turn)


def _read_blocks(name: str, value: object) -> str:
    return read_content(name, value, BLOCK_FIELDS, _refuse_in_block)


def _read_system(name: str, value: object) -> str:
    """A text or a list of blocks; none at all is the same as leaving it out."""
    return "" if value == [] else _read_blocks(name, value)


def _refuse_field(prefix: str, name: str, value: object) -> InvalidValue | None:
    if name in SAYING_NOTHING:
        return unsupported_field(name, value, SAYING_NOTHING[name])
    return unknown_field(prefix, name, [*MESSAGE_FIELDS, *SAYING_NOTHING])


def _refuse_in_turn(prefix: str, name: str, value: object) -> InvalidValue | None:
    return unknown_field(prefix, name, TURN_FIELDS)


def _refuse_in_block(prefix: str, name: str, value: object) -> InvalidValue | None:
    if name in EMPTY_IN_BLOCKS:
        return unsupported_field(prefix + name, value, ([],))
    return unknown_field(prefix, name, BLOCK_FIELDS)


# Accepted, of the right kind only, and without effect.
HARMLESS: Mapping[str, Reader] = {
    "metadata": read_object,
    "cache_control": read_object,
    "user_profile_id": read_text,
    "workspace_id": read_text,
}
HARMLESS_IN_BLOCKS: Mapping[str, Reader] = {"cache_control": read_object}
MESSAGE_FIELDS: Mapping[str, Reader] = {
    "model": read_text,
    "max_tokens": Number("required_max_tokens"),
    "messages": _read_messages,
    "system": _read_system,
    "temperature": Number("unit_temperature"),
    "top_p": Number("top_p"),
    "top_k": Number("top_k"),
    "stop_sequences": read_stop_list,
    "stream": read_flag,
    **HARMLESS,
}
TURN_FIELDS: Mapping[str, Reader] = {"role": one_of(ROLES), "content": _read_blocks}
BLOCK_FIELDS: Mapping[str, Reader] = {"type": read_text, "text": read_text, **HARMLESS_IN_BLOCKS}
# Not supported, but what clients send that repeat an answer: with nothing in it.
EMPTY_IN_BLOCKS = ("citations",)
# Known fields that are not supported, with the values that say no more than leaving them out.
SAYING_NOTHING: Mapping[str, tuple[object, ...]] = {
    "container": (),
    "context_management": ({}, {"edits": []}),
    "diagnostics": (),
    "inference_geo": (),
    "mcp_servers": ([],),
    "output_config": ({},),
    "output_format": (),
    "service_tier": ("auto", "standard_only"),
    "speed": ("standard",),
    "thinking": ({"type": "disabled"},),
    "tool_choice": ({"type": "auto"}, {"type": "none"}),
    "tools": ([],),
}
