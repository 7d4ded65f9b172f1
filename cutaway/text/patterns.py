"""Refuses regular expressions, from a model's files, that can take exponential time.

Owns one rule: what is repeated without end must not itself have a variable length or alternatives to choose from, for
then a text can be taken apart in exponentially many ways, and a backtracking engine tries them all. That is stricter
than it has to be, but the expressions of published tokenizers pass. Refuses to know what the expressions are for.
The engine (Oniguruma, in the tokenizers library) also counts its steps and gives up after ten million for one match;
this rule is there so that it does not come to that on every word. Polynomial cost is not looked for.
"""

import re
from dataclasses import dataclass

from cutaway.errors import UnsupportedModel

MAX_PATTERN_CHARS = 10_000

_TOKEN = re.compile(
    r"""(?P<escape>\\(?:[pP]\{[^}]*\}|x\{[^}]*\}|.))
      | (?P<class>\[\^?\]?)
      | (?P<open>\((?:\?(?:[:=!>|]|<[=!]|<\w+>|\#|[imx-]+:?))?)
      | (?P<close>\))
      | (?P<repeat>(?:[*+?]|\{\d*,?\d*\})[?+]?)
      | (?P<bar>\|)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_CLASS_END = re.compile(r"\\.|\[|\]", re.DOTALL)


@dataclass(slots=True)
class _Group:
    """What was seen in a group: whether it can match in more than one way, and whether it can be backtracked into."""

    ambiguous: bool = False
    atomic: bool = False


def check_pattern(pattern: str) -> None:
    """Raises ``UnsupportedModel`` for an expression that may take exponential time, or that is absurdly long."""
    if len(pattern) > MAX_PATTERN_CHARS:
        raise UnsupportedModel(
            f"the tokenizer has an expression of {len(pattern):,} characters, more than {MAX_PATTERN_CHARS:,}"
        )
    stack = [_Group()]
    last = _Group()
    position = 0
    while (match := _TOKEN.match(pattern, position)) is not None:
        position = match.end()
        kind = match.lastgroup
        if kind == "open":
            stack.append(_Group(atomic=match["open"].startswith("(?>")))
        elif kind == "close" and len(stack) > 1:
            last = stack.pop()
            stack[-1].ambiguous |= last.ambiguous and not last.atomic
        elif kind == "bar":
            stack[-1].ambiguous = True
        elif kind == "repeat":
            _repeat(pattern, match["repeat"], last, stack[-1])
        else:
            if kind == "class":
                position = _class_end(pattern, position)
            last = _Group()


def _repeat(pattern: str, repeat: str, repeated: _Group, around: _Group) -> None:
    low, high = _bounds(repeat)
    if high is None and repeated.ambiguous and not repeated.atomic:
        raise UnsupportedModel(
            f"the tokenizer cuts words with an expression that may take exponential time: {pattern[:80]!r}",
            hint="the model's tokenizer.json is hostile, or unlike any that is known; please report it if you trust it",
        )
    # Possessive repetition gives nothing back, so there is nothing to try again.
    if high != low and not (repeat.endswith("+") and len(repeat) > 1):
        around.ambiguous = True


def _bounds(repeat: str) -> tuple[int, int | None]:
    if repeat[0] in "*+":
        return int(repeat[0] == "+"), None
    if repeat[0] == "?":
        return 0, 1
    low, comma, high = repeat.rstrip("?+")[1:-1].partition(",")
    if not comma:
        return int(low or 0), int(low or 0)
    return int(low or 0), int(high) if high else None


def _class_end(pattern: str, position: int) -> int:
    """The position behind a character class that was opened before ``position``; classes may be nested."""
    depth = 1
    while depth and (match := _CLASS_END.search(pattern, position)) is not None:
        position = match.end()
        depth += {"[": 1, "]": -1}.get(match[0], 0)
    return position if not depth else len(pattern)
