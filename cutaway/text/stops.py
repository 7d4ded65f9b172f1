"""Finds stop strings in text that arrives in pieces.

Owns the automaton and the text that is held back. Refuses to know tokens; standard library only. Invariants: nothing of
a stop string is ever shown; whatever can no longer be part of one is shown at once; the pieces shown, joined, are the
text up to the first stop string, or all of it; and a character costs the same however long the text is.

The automaton is that of Aho and Corasick, "Efficient string matching", CACM 18 (1975), with the failure links followed
while matching.
"""

from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Node:
    """A beginning of one or more stop strings.

    Attributes:
        depth: its length in characters.
        next: the node one character further.
        fallback: the longest proper ending of it that is a node too.
        match: the longest stop string that it ends with.
    """

    depth: int
    next: dict[str, "_Node"] = field(default_factory=dict)
    fallback: "_Node | None" = None
    match: str | None = None


class StopMatcher:
    """Watches one answer. After a match it takes nothing more in.

    Args:
        stops: the strings that end the answer, none empty; may be none at all.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        assert all(stops), "an empty stop string matches everywhere"
        self._root = _build(stops)
        self._node = self._root
        self._held = ""
        self._matched: str | None = None

    @property
    def held(self) -> str:
        """The text held back, since a stop string may begin with it."""
        return self._held

    def push(self, text: str) -> tuple[str, str | None]:
        """Take in ``text``; gives the text that can be shown now, and the stop string that is complete, if one is.

        The first to be complete wins, the longest if several are complete with the same character. Text in front of it
        is shown; it, and what follows, is not.
        """
        if self._matched is not None:
            return "", self._matched
        known = self._held + text
        node = self._node
        for at, char in enumerate(text, start=len(self._held) + 1):
            node = self._follow(node, char)
            if node.match is not None:
                self._matched = node.match
                self._held = ""
                return known[: at - len(node.match)], node.match
        return self._hold(known, node), None

    def skip(self, text: str) -> str:
        """Take in ``text`` in which no stop string counts that is complete; gives the text that can be shown now.

        One that only begins in it still counts when it is complete.
        """
        node = self._node
        for char in text:
            node = self._follow(node, char)
        while not node.next and node.fallback is not None:  # complete, and no longer one begins with it
            node = node.fallback
        return self._hold(self._held + text, node)

    def _follow(self, node: _Node, char: str) -> _Node:
        """The node after one more character."""
        while (following := node.next.get(char)) is None and node.fallback is not None:
            node = node.fallback
        return following or self._root

    def _hold(self, known: str, node: _Node) -> str:
        """Hold back what a stop string may begin with; gives what is before it."""
        self._node = node
        first_held = len(known) - node.depth
        self._held = known[first_held:]
        return known[:first_held]

    def flush(self) -> str:
        """The text held back, now that nothing follows."""
        text, self._held, self._node = self._held, "", self._root
        return text


def _build(stops: tuple[str, ...]) -> _Node:
    root = _Node(0)
    for stop in stops:
        node = root
        for char in stop:
            node = node.next.setdefault(char, _Node(node.depth + 1))
        node.match = stop
    # Breadth first: a fallback is shorter, so it is finished before it is needed.
    pending = deque([root])
    while pending:
        node = pending.popleft()
        for char, child in node.next.items():
            fallback = node.fallback
            while fallback is not None and char not in fallback.next:
                fallback = fallback.fallback
            child.fallback = root if fallback is None else fallback.next[char]
            child.match = child.match or child.fallback.match
            pending.append(child)
    return root
