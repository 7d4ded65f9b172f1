"""Finds out which characters of a rendered prompt came from which message.

Owns the trick: the template runs a second time with a marker at each end of every content. Where taking the markers out
gives the first rendering again, the markers tell where the contents went. Templates that look into contents closely
enough to be disturbed by that get a search instead. Refuses to know tokenizers and templates; standard library only.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

# Code points that never stand in interchanged text, like the mark of ``escape``: one opens the number of a message,
# ten are its digits, two tell which end of the content it was.
_OPEN = "\ufdd2"
_DIGITS = "\ufdd4\ufdd5\ufdd6\ufdd7\ufdd8\ufdd9\ufdda\ufddb\ufddc\ufddd"
_BEGIN = "\ufdde"
_END = "\ufddf"
_MARKER = re.compile(f"{_OPEN}([{_DIGITS}]+)([{_BEGIN}{_END}])")
_RESERVED = re.compile(f"[{_OPEN}{_DIGITS}{_BEGIN}{_END}]")


@dataclass(frozen=True, slots=True)
class Origin:
    """A part of a rendered text that came from a message: characters ``start`` to ``end`` from message ``message``."""

    start: int
    end: int
    message: int


@dataclass(frozen=True, slots=True)
class _Marker:
    """Where a marker was, in the text without markers."""

    position: int
    message: int
    begins: bool


def find_origins(
    text: str, contents: Sequence[str], write: Callable[[Sequence[str]], str | None] | None
) -> tuple[Origin, ...]:
    """The parts of ``text`` that came from ``contents``, in order and without overlaps.

    ``write`` renders contents again, or gives ``None`` where it cannot; without it they are searched for.
    """
    if write is not None and not any(_RESERVED.search(content) for content in contents):
        # First around everything, then inside of the white space, which many templates cut off.
        for mark in (_mark_all, _mark_core):
            marked = [mark(content, index) for index, content in enumerate(contents)]
            written = write(marked)
            if written is not None and _MARKER.sub("", written) == text:
                return _join(text, contents, list(_markers(written)))
            if all(content == content.strip() for content in contents):
                break
    return _search(text, contents)


def _mark_all(content: str, index: int) -> str:
    number = "".join(_DIGITS[int(digit)] for digit in str(index))
    return f"{_OPEN}{number}{_BEGIN}{content}{_OPEN}{number}{_END}" if content else content


def _mark_core(content: str, index: int) -> str:
    core = content.strip()
    return content.replace(core, _mark_all(core, index), 1) if core else content


def _markers(written: str) -> Iterable[_Marker]:
    removed = 0
    for match in _MARKER.finditer(written):
        index = int("".join(str(_DIGITS.index(digit)) for digit in match[1]))
        yield _Marker(match.start() - removed, index, match[2] == _BEGIN)
        removed += match.end() - match.start()


def _join(text: str, contents: Sequence[str], markers: Sequence[_Marker]) -> tuple[Origin, ...]:
    """Pairs of markers to origins.

    A template that cuts a content (reasoning before an answer is often dropped) leaves one marker alone; from there the
    origin reaches as far as text and content agree, but for white space, of which the template may have put its own.
    """
    origins: list[Origin] = []
    end = 0
    for at, marker in enumerate(markers):
        content = contents[marker.message]
        following = markers[at + 1] if at + 1 < len(markers) else None
        if marker.begins:
            if following is not None and not following.begins and following.message == marker.message:
                origin = Origin(marker.position, following.position, marker.message)
            else:
                limit = len(text) if following is None else following.position
                shared = _num_shared(text[marker.position : limit], content)
                kept = text[marker.position : marker.position + shared].rstrip()
                origin = Origin(marker.position, marker.position + len(kept), marker.message)
        else:
            before = text[end : marker.position]
            shared = _num_shared(before[::-1], content[::-1])
            kept = text[marker.position - shared : marker.position].lstrip()
            origin = Origin(marker.position - len(kept), marker.position, marker.message)
        if origin.end > origin.start >= end:
            origins.append(origin)
            end = origin.end
    return tuple(origins)


def _num_shared(first: str, second: str) -> int:
    """How many characters the beginnings of two texts have in common."""
    for at, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return at
    return min(len(first), len(second))


def _search(text: str, contents: Sequence[str]) -> tuple[Origin, ...]:
    """Each content where it stands behind the one before; as a whole, or else without the white space around it."""
    origins: list[Origin] = []
    end = 0
    for index, content in enumerate(contents):
        for wanted in (content, content.strip()):
            start = text.find(wanted, end) if wanted else -1
            if start >= 0:
                end = start + len(wanted)
                origins.append(Origin(start, end, index))
                break
    return tuple(origins)
