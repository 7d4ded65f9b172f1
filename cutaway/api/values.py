"""Single values of a request: of which kind each must be.

Owns the readers ``(name, value) -> value`` that the tables of vendors are made of. Refuses to know fields.
Invariant: an error names the field as the client spells it, and repeats no more than a line of what was sent.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cutaway.errors import InvalidValue, UnknownModel
from cutaway.limits import LIMITS, check_number, check_stop_strings

# (name as the client spells it, value) -> the value as it is understood.
Reader = Callable[[str, object], Any]

MAX_SHOWN_CHARS = 60
MAX_MODEL_CHARS = 80
MAX_SHOWN_BITS = 128


@dataclass(frozen=True, slots=True)
class Number:
    """A reader of numbers.

    Attributes:
        limit_name: of ``LIMITS``, what they must be inside of.
    """

    limit_name: str

    def __call__(self, name: str, value: object) -> float:
        """The number."""
        limit = LIMITS[self.limit_name]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidValue(name, f"{shown(value)} is not {limit}", hint=limit.hint)
        if isinstance(value, int) and value.bit_length() > MAX_SHOWN_BITS:
            raise InvalidValue(name, f"{shown(value)} is outside its limits, {limit}", hint=limit.hint)
        try:
            check_number(self.limit_name, value)
        except InvalidValue as error:
            raise error.renamed(name) from None
        return value


def read_text(name: str, value: object) -> str:
    """A text that can be written in UTF-8."""
    if not isinstance(value, str):
        raise refuse_kind(name, value, "a text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidValue(name, f"character {error.start} is half of a surrogate pair, which is no text") from None
    return value


def read_flag(name: str, value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise refuse_kind(name, value, "true or false")
    return value


def read_object(name: str, value: object) -> dict[str, object]:
    """An object, whatever is in it."""
    if not isinstance(value, dict):
        raise refuse_kind(name, value, "an object")
    return value


def read_list(name: str, value: object) -> list[object]:
    """A list, whatever is in it."""
    if not isinstance(value, list):
        raise refuse_kind(name, value, "a list")
    return value


def read_stop(name: str, value: object) -> tuple[str, ...]:
    """A text or a list of texts that end an answer."""
    if not isinstance(value, str | list):
        raise refuse_kind(name, value, "a text or a list of texts")
    return read_stop_list(name, [value] if isinstance(value, str) else value)


def read_stop_list(name: str, value: object) -> tuple[str, ...]:
    """A list of texts that end an answer."""
    if not isinstance(value, list):
        raise refuse_kind(name, value, "a list of texts")
    stop = tuple(read_text(name, text) for text in value)
    try:
        check_stop_strings(stop)
    except InvalidValue as error:
        raise error.renamed(name) from None
    return stop


def check_model(wanted: str, model: str) -> None:
    """Raises ``UnknownModel`` unless a client wants the model that answers here."""
    if wanted != model:
        shown_name = repr(wanted[:MAX_MODEL_CHARS])
        raise UnknownModel(f"the model {shown_name} does not exist here", hint=f"there is {model!r}")


def refuse_kind(name: str, value: object, wanted: str) -> InvalidValue:
    """The error of a value that is something else than it must be."""
    return InvalidValue(name, f"{shown(value)} is not {wanted}")


def shown(value: object) -> str:
    """A value for a message, as it was sent or what it is."""
    if isinstance(value, str):
        return json.dumps(value if len(value) <= MAX_SHOWN_CHARS else value[:MAX_SHOWN_CHARS] + "…")
    if isinstance(value, list):
        return f"a list of {len(value):,}" if value else "an empty list"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, int) and value.bit_length() > MAX_SHOWN_BITS:
        return f"a number of {len(str(value)):,} digits"
    return json.dumps(value)
