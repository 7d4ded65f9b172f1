"""The fields of an object that a client sent, read by a table.

Owns how a table of readers is applied, and the words for what is missing, not supported or unknown. Refuses to know
which fields there are. Invariants: no field is passed over: it is read, or refused with its name; ``null`` is the same
as leaving it out.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cutaway.api.values import Reader, refuse_kind, shown
from cutaway.errors import InvalidValue

MAX_NAME_CHARS = 80
# (prefix, name, value) -> what to raise; ``None`` if the field says nothing as it is.
Refuse = Callable[[str, str, object], InvalidValue | None]


def read_fields(value: object, known: Mapping[str, Reader], prefix: str, refuse: Refuse) -> dict[str, Any]:
    """The fields of an object, each as its reader understands it, without those that are ``null``.

    Args:
        value: the object.
        known: a reader for each field that may be there.
        prefix: of the names of its fields in errors.
        refuse: what to do about any other field.
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


def object_of(known: Mapping[str, Reader]) -> Reader:
    """A reader of objects that have these fields and no others."""

    def read(name: str, value: object) -> dict[str, Any]:
        return read_fields(value, known, f"{name}.", lambda prefix, other, _: unknown_field(prefix, other, known))

    return read


def require(fields: Mapping[str, Any], names: Iterable[str], prefix: str = "") -> None:
    """Raises ``InvalidValue`` for the first of some names that is not there."""
    for name in names:
        if name not in fields:
            raise InvalidValue(prefix + name, "it is missing")


def unsupported_field(name: str, value: object, saying_nothing: Iterable[object]) -> InvalidValue | None:
    """The error of a known field that is not supported; ``None`` if it says no more than leaving it out."""
    if value is None or any(value == each and type(value) is type(each) for each in saying_nothing):  # true is not 1
        return None
    return InvalidValue(name, f"{shown(value)} is not supported", hint="leave it out")


def unknown_field(prefix: str, name: str, known: Iterable[str]) -> InvalidValue:
    """The error of a field that nobody knows, with the nearest name that is known."""
    near = difflib.get_close_matches(name[:MAX_NAME_CHARS], list(known), n=1)
    hint = f"did you mean {near[0]}?" if near else "leave it out"
    return InvalidValue(prefix + name[:MAX_NAME_CHARS], "this field is not known", hint=hint)
