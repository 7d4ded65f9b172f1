"""Ids to text: one at a time, never showing half a character, or all at once.

Owns what is held back between two tokens. Refuses to know stop strings and vocabularies. Invariants: the texts that
``push`` and ``flush`` gave, joined, are the bytes of all ordinary tokens decoded at once, with U+FFFD where they are no
UTF-8, but for one leading space where the tokenizer adds one; and a token costs the same however long the text is.
"""

import codecs
from collections.abc import Sequence

from cutaway.text.tokenizer import Tokenizer


class Detokenizer:
    """Decodes one answer.

    Args:
        tokenizer: of the model that writes the answer.
        previous_id: the token in front of the answer. Behind a control token, or none, a text begins, to which some
            tokenizers add a space; behind anything else a space is the model's own.
    """

    def __init__(self, tokenizer: Tokenizer, previous_id: int | None = None) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        begins = previous_id is None or tokenizer.is_special(previous_id)
        self._drops_space = tokenizer.adds_space and begins

    @property
    def held(self) -> bytes:
        """The bytes of a character that is not complete yet; at most three."""
        return self._decoder.getstate()[0]

    def push(self, token_id: int) -> str:
        """The text that has become complete with this token; control tokens give none."""
        if self._tokenizer.is_special(token_id):
            return ""
        return self._show(self._decoder.decode(self._tokenizer.token_bytes(token_id)))

    def flush(self) -> str:
        """The text of what is held back, now that no token follows: nothing, or U+FFFD for a broken character."""
        return self._show(self._decoder.decode(b"", final=True))

    def _show(self, text: str) -> str:
        if self._drops_space and text:
            self._drops_space = False
            return text.removeprefix(" ")
        return text


def spell_text(tokenizer: Tokenizer, token_ids: Sequence[int]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The text that tokens stand for, control tokens spelled out, and the (start, end) of each token in it.

    Bytes that are no UTF-8 are U+FFFD. Tokens that are parts of one character share its span. The space that some
    tokenizers add where a text begins, first of all and behind a control token, is left out.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    parts: list[str] = []
    spans: list[tuple[int, int]] = []
    length, begins = 0, True
    for token_id in token_ids:
        is_special = tokenizer.is_special(token_id)
        if is_special:  # a character does not go on behind a control token
            parts.append(decoder.decode(b"", final=True))
            length += len(parts[-1])
        content = tokenizer.token_bytes(token_id)
        if begins and tokenizer.adds_space:
            content = content.removeprefix(b" ")
        parts.append(decoder.decode(content, final=is_special))
        end = length + len(parts[-1])
        spans.append((length, end + bool(decoder.getstate()[0])))
        length, begins = end, is_special
    parts.append(decoder.decode(b"", final=True))
    return "".join(parts), tuple(spans)
