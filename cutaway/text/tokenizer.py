"""The seam between text and token ids."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Encoding:
    """Token ids of a text and where each came from.

    Attributes:
        token_ids: one id a token.
        spans: one (start, end) a token, in characters of the unescaped text, that is, without the marks of
            ``Tokenizer.escape``. Tokens that are parts of one character share its span; tokens that stand for no text
            (an added BOS) have an empty span.
    """

    token_ids: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]


class Tokenizer(Protocol):
    """Text to ids and back. Pure: no method changes the object, so threads may share it."""

    @property
    def vocab_size(self) -> int:
        """Number of ids, control tokens included; ``encode`` gives none at or above it."""
        ...

    @property
    def bos_id(self) -> int | None:
        """The id that begins a text, when the model was trained with one in front (``add_bos``); else ``None``."""
        ...

    @property
    def end_ids(self) -> tuple[int, ...]:
        """The ids that end an answer, most usual first."""
        ...

    @property
    def adds_space(self) -> bool:
        """Whether ``encode`` puts a space in front of a text, which decoding has to take away again."""
        ...

    @property
    def notices(self) -> tuple[str, ...]:
        """What had to be assumed about the vocabulary, in words for its user; usually nothing."""
        ...

    def encode(self, text: str) -> Encoding:
        """Encode ``text`` as the model's authors would: control tokens spelled out in it become control ids.

        Never adds BOS or EOS by itself. Text that came from a user goes through ``escape`` first. Characters that the
        vocabulary cannot express (no unknown token, no bytes) have no token, as with the model's own tokenizer.

        Raises:
            InvalidValue: ``text`` holds half of a surrogate pair, or a token for which the model has no row.
        """
        ...

    def escape(self, text: str) -> str:
        """Mark ``text`` so that no control token spelled out in it, or begun or ended by it, becomes a control id.

        The marks vanish in ``encode``. Ordinary text, and text with ordinary added tokens, is returned unchanged.
        """
        ...

    def unescape(self, text: str) -> str:
        """Remove the marks that ``escape`` set: ``unescape(escape(text)) == text`` for every text."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that the token stands for in a text; for a control token, its spelling in UTF-8.

        Empty for an id that the vocabulary leaves unused; models may have more rows than their vocabulary has tokens.
        """
        ...

    def piece(self, token_id: int) -> str:
        """The token as the vocabulary spells it (``Ġtomato``, ``▁tomato``, ``<0xEA>``, ``<|im_end|>``)."""
        ...

    def is_special(self, token_id: int) -> bool:
        """Whether the id is a control token, which is never shown as text."""
        ...
