"""Typed read access to the key/value metadata of a checkpoint.

Owns the checks that every reader of metadata needs: present, of the right type, inside its limits. Refuses to know
what a key means and where it came from; GGUF keys and the keys of a ``config.json`` (nested ones joined by dots) look
the same. Standard library only. Invariant: what a getter returns has the type that its name says and is in range.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard, cast

from cutaway.errors import CorruptFile

MIN_INTEGER = -(2**63)
MAX_INTEGER = 2**64 - 1

_HINT = "the model's files are damaged or were written by a broken converter; fetch them again"
_MAX_SHOWN_CHARS = 60


@dataclass(frozen=True, slots=True)
class PackedArray:
    """An array that stays in its file's encoding until somebody asks for it.

    Attributes:
        kind: what its elements are: ``text``, ``integer``, ``number``, ``flag`` or ``array``.
        length: number of elements.
        unpack: decodes all elements; raises ``CorruptFile`` when one is malformed.
    """

    kind: str
    length: int
    unpack: Callable[[], tuple[object, ...]]

    def __str__(self) -> str:
        return f"an array of {self.length:,} elements of kind {self.kind}"


class Metadata:
    """Key/value metadata of one checkpoint.

    Every getter takes an optional ``default`` for a key that is absent (or null); without one the key is required.

    Raises:
        CorruptFile: by every getter, when the key is missing, ill-typed or out of range; names file, key, value, limit.
    """

    def __init__(self, path: Path, values: Mapping[str, object]) -> None:
        self.path = path
        self._values = {key: value for key, value in values.items() if value is not None}

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def integer(
        self, key: str, *, default: int | None = None, minimum: int = MIN_INTEGER, maximum: int = MAX_INTEGER
    ) -> int:
        """A whole number from ``minimum`` to ``maximum``; a float is not one, even if whole."""
        value = self._get(key, default)
        if not _is_integer(value) or not minimum <= value <= maximum:
            raise self._refuse(key, f"a whole number{_range(minimum, maximum)}")
        return value

    def number(
        self, key: str, *, default: float | None = None, minimum: float = -math.inf, maximum: float = math.inf
    ) -> float:
        """A finite number from ``minimum`` to ``maximum``."""
        value = self._get(key, default)
        if not _is_finite(value) or not minimum <= value <= maximum:
            raise self._refuse(key, f"a finite number{_range(minimum, maximum)}")
        return float(value)

    def text(self, key: str, *, default: str | None = None) -> str:
        """A string."""
        value = self._get(key, default)
        if not isinstance(value, str):
            raise self._refuse(key, "text")
        return value

    def flag(self, key: str, *, default: bool | None = None) -> bool:
        """True or false; a number is neither."""
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self._refuse(key, "true or false")
        return value

    def strings(self, key: str, *, default: Sequence[str] | None = None) -> tuple[str, ...]:
        """A list of strings; a single one counts as a list of length one."""
        elements = self._elements(key, default, ("text",))
        if not set(map(type, elements)) <= {str}:
            raise self._refuse(key, "a list of strings")
        return cast("tuple[str, ...]", tuple(elements))

    def integers(
        self,
        key: str,
        *,
        default: Sequence[int] | None = None,
        minimum: int = MIN_INTEGER,
        maximum: int = MAX_INTEGER,
    ) -> tuple[int, ...]:
        """A list of whole numbers from ``minimum`` to ``maximum``; a single one counts as a list of length one."""
        elements = self._elements(key, default, ("integer",))
        if not set(map(type, elements)) <= {int}:
            raise self._refuse(key, f"a list of whole numbers{_range(minimum, maximum)}")
        integers = cast("tuple[int, ...]", tuple(elements))
        if integers and not (minimum <= min(integers) and max(integers) <= maximum):
            raise self._refuse(key, f"a list of whole numbers{_range(minimum, maximum)}")
        return integers

    def numbers(self, key: str, *, default: Sequence[float] | None = None) -> tuple[float, ...]:
        """A list of finite numbers; a single one counts as a list of length one."""
        elements = self._elements(key, default, ("number", "integer"))
        numbers = tuple(float(element) for element in elements if _is_finite(element))
        if len(numbers) != len(elements):
            raise self._refuse(key, "a list of finite numbers")
        return numbers

    def _get(self, key: str, default: object) -> object:
        value = self._values.get(key, default)
        if value is None:
            raise CorruptFile(f"{self.path}: the metadata have no {key!r}", hint=_HINT)
        return value

    def _elements(self, key: str, default: Sequence[object] | None, kinds: tuple[str, ...]) -> Sequence[object]:
        value = self._get(key, default)
        if isinstance(value, PackedArray) and value.kind in kinds:
            return value.unpack()
        return value if isinstance(value, list | tuple) else (value,)

    def _refuse(self, key: str, expected: str) -> CorruptFile:
        value = self._values.get(key)
        return CorruptFile(f"{self.path}: {key!r} must be {expected}, but is {_show(value)}", hint=_HINT)


def flatten(path: Path, tree: Mapping[str, object], max_depth: int = 8) -> dict[str, object]:
    """Join the keys of nested objects by dots: ``rope_scaling.factor``. The objects stay under their own keys too.

    Raises:
        CorruptFile: two keys become one, or the tree is deeper than ``max_depth``.
    """
    flat: dict[str, object] = {}
    pending: list[tuple[str, Mapping[str, object], int]] = [("", tree, 1)]
    while pending:
        prefix, branch, depth = pending.pop()
        if depth > max_depth:
            raise CorruptFile(f"{path}: {prefix!r} is nested deeper than {max_depth} levels", hint=_HINT)
        for name, value in branch.items():
            key = prefix + name
            if key in flat:
                raise CorruptFile(f"{path}: the key {key!r} is there twice", hint=_HINT)
            flat[key] = value
            if isinstance(value, dict):
                pending.append((f"{key}.", value, depth + 1))
    return flat


def _range(minimum: float, maximum: float) -> str:
    lower = "" if minimum in (MIN_INTEGER, -math.inf) else f" of at least {minimum:,}"
    upper = "" if maximum in (MAX_INTEGER, math.inf) else f" of at most {maximum:,}"
    return f"{lower} and{upper}" if lower and upper else lower or upper


def _show(value: object) -> str:
    if isinstance(value, PackedArray):
        return str(value)
    shown = f"{value:,}" if _is_integer(value) and abs(value) <= MAX_INTEGER else repr(value)
    return shown if len(shown) <= _MAX_SHOWN_CHARS else shown[: _MAX_SHOWN_CHARS - 1] + "…"


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_finite(value: object) -> TypeGuard[int | float]:
    if isinstance(value, float):
        return math.isfinite(value)
    return _is_integer(value) and MIN_INTEGER <= value <= MAX_INTEGER
