"""Texts that tell tokenizers apart: a generator with a seed, and nothing else."""

import random
from collections.abc import Iterator, Sequence

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCXYZéüßñøłçÆДжяΩλאבשمرحबनमกขไม"
_HANGUL = "".join(map(chr, range(0xAC00, 0xAC00 + 11172, 157)))
_JAMO = "ㄱㄴㅏㅓ" + "\u1112\u1161\u11ab"
_CJK = "漢字日本語中国北京東京あいうえおカタカナ𠮷㐀、。「」！？"
_EMOJI = ("👩‍👩‍👧‍👦", "👍🏽", "🏳️‍🌈", "🇰🇷", "☺️", "😀", "❤", "🧑‍💻", "\u200d", "\ufe0f")
_MARKS = ("e\u0301", "a\u0308\u0323", "\u0915\u094d\u0937", "n\u0303", "\u0301", "가\u0301", "\u1100\u1161\u11a8", "Å")
_CONTRACTIONS = ("don't", "I'm", "we'll", "IT'S", "y'all", "she'd", "they've", "'re", "'S", "'T ", "o’clock", "'ſ")
_SPACES = (" ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", " \n ", "\u00a0", "\u3000", "\u2009", "\x0b", "\t\t", "\n\n\n")
_CODE = (
    "def f(x):\n    return x + 1\n",
    "if (a && b) { ++i; }",
    "x[0]->y::z",
    "#include <stdio.h>\n\n",
    "a_b-c.d/e\\f",
    "<div class='x'>&nbsp;</div>",
    "SELECT * FROM t WHERE id=0x1F;",
    "https://example.org/a?b=c&d=%20",
    '{"k": [1, 2.5e-3, null]}',
    "```python\n",
    "$$\\frac{1}{2}$$",
)
_NUMBERS = ("3", "33", "333", "3333", "33333333", "1,234.56", "2026-01-02", "٣٤٥", "½", "Ⅻ", "x²", "1e9", "0b101", "三")
_PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~¿¡«»—…·“”‘’§†"
_WORDS = ("the", "tomato", "is", "a fruit", "Hello world", "antidisestablishmentarianism", "naïve", "Zürich")
_ODD = ("\x00", "\x01", "\x7f", "\ufeff", "\u200b", "\u202e", "\uffff", "\U0010ffff", "\u00ad", "▁", "Ġ", "Ċ", "<0x0A>")


def fuzz_texts(seed: int, count: int, added_tokens: Sequence[str]) -> Iterator[str]:
    """``count`` texts; each a handful of parts of all kinds, with ``added_tokens`` among them."""
    source = random.Random(seed)
    kinds = (
        lambda: source.choice(_WORDS),
        lambda: " " + source.choice(_WORDS),
        lambda: "".join(source.choices(_LETTERS, k=source.randint(1, 8))),
        lambda: "".join(source.choices(_HANGUL + _JAMO, k=source.randint(1, 6))),
        lambda: "".join(source.choices(_CJK, k=source.randint(1, 6))),
        lambda: source.choice(_EMOJI),
        lambda: source.choice(_MARKS),
        lambda: source.choice(_CONTRACTIONS),
        lambda: source.choice(_SPACES),
        lambda: " " * source.randint(1, 80),
        lambda: source.choice(_CODE),
        lambda: source.choice(_NUMBERS),
        lambda: str(source.randint(0, 10**12)),
        lambda: "".join(source.choices(_PUNCTUATION, k=source.randint(1, 5))),
        lambda: source.choice(_ODD),
        lambda: source.choice(added_tokens),
        lambda: source.choice(added_tokens)[: source.randint(1, 8)],
        lambda: chr(source.choice((source.randint(0x20, 0xD7FF), source.randint(0xE000, 0x1FFFF)))),
    )
    for _ in range(count):
        yield "".join(source.choice(kinds)() for _ in range(source.randint(1, 12)))
