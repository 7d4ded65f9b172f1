"""The bytes of a request body to JSON values, under limits.

Owns what is taken for JSON: UTF-8, numbers that are numbers, no name twice in an object. Refuses to know what the
values mean. Invariant: what the standard library's parser is given takes it some milliseconds, because it holds up
every other thread as long as it runs; strings are cheap for it, values are not, so their number is limited beforehand.
"""

import json
from collections.abc import Iterator

from cutaway.errors import InvalidValue
from cutaway.limits import MAX_BODY_VALUES

BODY = "body"
# Each value but the first stands behind one of them.
STRUCTURE = b",:[{"
QUOTE, BACKSLASH = b'"', ord("\\")


def parse_body(body: bytes) -> object:
    """The JSON value that a body is.

    Raises:
        InvalidValue: it is none, or has more than ``MAX_BODY_VALUES`` values.
    """
    if _count(body, 0, len(body)) > MAX_BODY_VALUES:  # commas of texts included
        _check_structure(body)
    try:
        return json.loads(body.decode(), object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise InvalidValue(BODY, f"byte {error.start} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise InvalidValue(BODY, f"this is not JSON: {error.msg} at character {error.pos:,}") from None
    except RecursionError:
        raise InvalidValue(BODY, "arrays and objects are nested too deeply") from None
    except ValueError:
        raise InvalidValue(BODY, "a number has too many digits") from None


def _check_structure(body: bytes) -> None:
    """Raises ``InvalidValue`` if there are too many values."""
    num_values = 0
    for start, end in _outside_strings(body):
        num_values += _count(body, start, end)
        if num_values > MAX_BODY_VALUES:
            raise InvalidValue(BODY, f"there are more than the limit of {MAX_BODY_VALUES:,} values in it")


def _count(body: bytes, start: int, end: int) -> int:
    return sum(body.count(mark, start, end) for mark in STRUCTURE)


def _outside_strings(body: bytes) -> Iterator[tuple[int, int]]:
    """The parts of a JSON text that are in no string, as (start, end)."""
    start = 0
    while (quote := body.find(QUOTE, start)) >= 0:
        yield start, quote
        end = body.find(QUOTE, quote + 1)
        while end >= 0 and _is_escaped(body, end):
            end = body.find(QUOTE, end + 1)
        if end < 0:
            return
        start = end + 1
    yield start, len(body)


def _is_escaped(body: bytes, position: int) -> bool:
    """Whether an odd number of backslashes stands before a position."""
    start = position
    while body[start - 1] == BACKSLASH:
        start -= 1
    return (position - start) % 2 == 1


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) < len(pairs):
        for name, _ in pairs:
            if name not in values:
                raise InvalidValue(BODY, f"{name[:80]!r} is there twice in one object")
            del values[name]
    return values


def _refuse_constant(name: str) -> None:
    raise InvalidValue(BODY, f"{name} is no number in JSON")
