"""Keeps the control tokens that a user types as text apart from those that a chat template writes.

A tokenizer finds control tokens in the raw text, before anything else happens to it. So a *mark* that stands inside of
a typed control token hides it, if the first thing that happens to the rest of the text is that marks are removed: what
remains is exactly what was typed, and it is encoded as ordinary text.

Owns the mark and where it has to stand. Refuses to know vocabularies; standard library only. Invariants:
``unescape(escape(text)) == text`` for every text; ``escape(text)``, put between any two texts that hold no mark, forms
no control token that it has a character in.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

# Two code points that Unicode reserves for use inside of programs and that never stand in interchanged text.
MARK = "\ufdd0\ufdd1"

_MARK_LEAD = MARK[0]
_MARK_SIZE = len(MARK)


class Escaper:
    """Knows the spellings of a vocabulary's control tokens.

    Args:
        spellings: the control tokens; each has two characters or more, none of them from ``MARK``.
    """

    def __init__(self, spellings: Iterable[str]) -> None:
        self._spellings = frozenset(spellings)
        assert all(len(spelling) > 1 and set(MARK).isdisjoint(spelling) for spelling in self._spellings)
        self._sorted = sorted(self._spellings)
        self._sorted_reversed = sorted(spelling[::-1] for spelling in self._spellings)
        self._insides = MARK[1].join(spelling[1:-1] for spelling in self._sorted)
        self._max_chars = max(map(len, self._spellings), default=0)
        sizes: dict[str, set[int]] = {}
        for spelling in self._spellings:
            sizes.setdefault(spelling[0], set()).add(len(spelling))
        self._sizes = {first: sorted(lengths) for first, lengths in sizes.items()}
        self._candidates = re.compile(f"[{re.escape(''.join(sizes))}]") if sizes else None

    def escape(self, text: str) -> str:
        """Set the marks. Text that has nothing to do with a control token is returned unchanged."""
        if not text:
            return text
        cuts = {start + 1 for start in range(len(text)) if text[start] == _MARK_LEAD} if _MARK_LEAD in text else set()
        cuts |= self._inner_cuts(text)
        cuts |= self._outer_cuts(text)
        if not cuts:
            return text
        return MARK.join(text[start:end] for start, end in pairwise([0, *sorted(cuts), len(text)]))

    def _inner_cuts(self, text: str) -> set[int]:
        """Behind the first character of each control token in the text, overlapping ones included."""
        if self._candidates is None:
            return set()
        return {
            start + 1
            for start in (match.start() for match in self._candidates.finditer(text))
            if any(text[start : start + size] in self._spellings for size in self._sizes[text[start]])
        }

    def _outer_cuts(self, text: str) -> set[int]:
        """At an end of the text where a control token could be completed by what a template writes beside it.

        Templates often remove white space from the ends of a text, so the ends without it count as well.
        """
        first = len(text) - len(text.lstrip())
        last = len(text.rstrip())
        cuts = {end for end in {last, len(text)} if self._begins_at_end(text[:end])}
        cuts |= {start for start in {0, first} if self._ends_at_start(text[start:])}
        core = text.strip() or text
        if len(core) < self._max_chars and core in self._insides:
            cuts.add(first)
        return cuts

    def _begins_at_end(self, text: str) -> bool:
        """Whether the text ends with the beginning of a control token."""
        longest = min(len(text), self._max_chars - 1)
        return any(_has_longer(self._sorted, text[-size:]) for size in range(1, longest + 1))

    def _ends_at_start(self, text: str) -> bool:
        """Whether the text starts with the rest of a control token."""
        longest = min(len(text), self._max_chars - 1)
        backwards = text[:longest][::-1]
        return any(_has_longer(self._sorted_reversed, backwards[-size:]) for size in range(1, longest + 1))


def escape_marks(text: str) -> str:
    """Let marks that stand in a text survive ``unescape``, and leave the control tokens in it what they are."""
    return text.replace(_MARK_LEAD, _MARK_LEAD + MARK)


def unescape(text: str) -> str:
    """Remove the marks."""
    return text.replace(MARK, "")


def unescaped_spans(text: str, spans: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Turn ``spans`` of ``text`` into those of ``unescape(text)``."""
    if MARK not in text:
        return tuple(spans)
    marks = [match.start() for match in re.finditer(MARK, text)]

    def shift(position: int) -> int:
        return position - _MARK_SIZE * bisect_left(marks, position)

    return tuple((shift(start), shift(end)) for start, end in spans)


def _has_longer(words: Sequence[str], prefix: str) -> bool:
    """Whether the sorted ``words`` have one that starts with ``prefix`` and is longer."""
    at = bisect_right(words, prefix)
    return at < len(words) and words[at].startswith(prefix)
