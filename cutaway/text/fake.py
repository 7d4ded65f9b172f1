"""A tokenizer without a model: one token a byte, and a few control tokens. For tests of everything around it.

Owns nothing but the ids: 0 to 255 are the bytes, 256 is BOS, 257 ends an answer, 258 and 259 open and close a turn.
"""

import re

from cutaway.errors import InvalidValue
from cutaway.text.escape import MARK, Escaper, unescape
from cutaway.text.tokenizer import Encoding

BOS_ID = 256
END_ID = 257
CONTROL_TOKENS = {BOS_ID: "<|bos|>", END_ID: "<|end|>", 258: "<|turn|>", 259: "<|close|>"}


class ByteTokenizer:
    """Implements ``Tokenizer``. Each byte of a character has the span of the character.

    Args:
        bos_id: ``BOS_ID`` for a model whose texts begin with BOS.
    """

    def __init__(self, bos_id: int | None = None) -> None:
        self.vocab_size = BOS_ID + len(CONTROL_TOKENS)
        self.bos_id = bos_id
        self.end_ids: tuple[int, ...] = (END_ID, 259)
        self.adds_space = False
        self.notices: tuple[str, ...] = ()
        self._escaper = Escaper(CONTROL_TOKENS.values())
        self._ids = {spelling: token_id for token_id, spelling in CONTROL_TOKENS.items()}
        self._parts = re.compile("|".join(map(re.escape, [MARK, *self._ids])) + "|.", re.DOTALL)

    def encode(self, text: str) -> Encoding:
        """Bytes, but for control tokens."""
        token_ids: list[int] = []
        spans: list[tuple[int, int]] = []
        position = 0
        for part in self._parts.findall(text):
            if part == MARK:
                continue
            added = [self._ids[part]] if part in self._ids else list(_utf8(part))
            token_ids += added
            spans += [(position, position + len(part))] * len(added)
            position += len(part)
        return Encoding(tuple(token_ids), tuple(spans))

    def escape(self, text: str) -> str:
        """Mark control tokens in ``text``."""
        return self._escaper.escape(text)

    def unescape(self, text: str) -> str:
        """Remove the marks of ``escape``."""
        return unescape(text)

    def token_bytes(self, token_id: int) -> bytes:
        """The byte, or a control token's spelling."""
        if token_id < BOS_ID:
            return bytes([token_id])
        return CONTROL_TOKENS.get(token_id, "").encode()

    def piece(self, token_id: int) -> str:
        """A byte as ``<0xEA>``, or a control token's spelling."""
        return f"<0x{token_id:02X}>" if token_id < BOS_ID else CONTROL_TOKENS.get(token_id, f"[UNUSED{token_id}]")

    def is_special(self, token_id: int) -> bool:
        """Whether the id is a control token's."""
        return token_id in CONTROL_TOKENS


def _utf8(char: str) -> bytes:
    try:
        return char.encode()
    except UnicodeEncodeError:
        raise InvalidValue("text", f"{char!r} is half of a surrogate pair, which is no text") from None
