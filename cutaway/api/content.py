"""A conversation: messages with a role each, and what they say: a text, or a list of parts that have a type each."""

from collections.abc import Mapping

from cutaway.api.fields import Refuse, read_fields, require
from cutaway.api.values import Reader, read_text, refuse_kind, shown
from cutaway.errors import InvalidValue
from cutaway.limits import MAX_MESSAGES
from cutaway.types import Message, Role

# Between the parts of one message, as vLLM and llama.cpp do.
PART_SEPARATOR = "\n"


def read_turns(name: str, value: object, fields: Mapping[str, Reader], refuse: Refuse) -> tuple[Message, ...]:
    """The messages of a conversation.

    Args:
        name: of the conversation.
        value: what was sent.
        fields: a reader for each field of a message, ``role`` and ``content`` among them.
        refuse: what to do about any other field of a message.
    """
    if not isinstance(value, list):
        raise refuse_kind(name, value, "a list of messages")
    if not 1 <= len(value) <= MAX_MESSAGES:
        raise InvalidValue(name, f"{len(value):,} messages are outside the limits, 1 to {MAX_MESSAGES:,}")
    return tuple(_read_turn(f"{name}[{index}]", message, fields, refuse) for index, message in enumerate(value))


def _read_turn(name: str, value: object, fields: Mapping[str, Reader], refuse: Refuse) -> Message:
    found = read_fields(value, fields, f"{name}.", refuse)
    require(found, ("role", "content"), f"{name}.")
    return Message(found["role"], found["content"])


def one_of(roles: Mapping[str, Role]) -> Reader:
    """A reader of roles, by their names."""

    def read(name: str, value: object) -> Role:
        role = roles.get(value) if isinstance(value, str) else None
        if role is None:
            raise InvalidValue(name, f"{shown(value)} is none of {', '.join(roles)}")
        return role

    return read


def read_content(name: str, value: object, part_fields: Mapping[str, Reader], refuse: Refuse) -> str:
    """A text, or the text of several parts.

    Args:
        name: of the content.
        value: what was sent.
        part_fields: a reader for each field of a part, ``type`` and ``text`` among them.
        refuse: what to do about any other field of a part.
    """
    if isinstance(value, str):
        return read_text(name, value)
    if not isinstance(value, list) or not value:
        raise refuse_kind(name, value, "a text or a list of parts with text")
    parts = (_read_part(f"{name}[{index}]", part, part_fields, refuse) for index, part in enumerate(value))
    return PART_SEPARATOR.join(parts)


def _read_part(name: str, value: object, part_fields: Mapping[str, Reader], refuse: Refuse) -> str:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind != "text" and isinstance(kind, str):
        raise InvalidValue(f"{name}.type", f"{shown(kind)} is not supported, only text")
    fields = read_fields(value, part_fields, f"{name}.", refuse)
    require(fields, ("type", "text"), f"{name}.")
    text: str = fields["text"]
    return text
