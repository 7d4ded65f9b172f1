"""What a message says: a text, or a list of parts that have a type each."""

from collections.abc import Mapping

from cutaway.api.fields import Reader, Refuse, read_fields, require
from cutaway.api.values import read_text, refuse_kind, shown
from cutaway.errors import InvalidValue

# Between the parts of one message, as vLLM and llama.cpp do.
PART_SEPARATOR = "\n"


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
