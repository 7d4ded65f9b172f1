"""Text to ids and back for real vocabularies, over one object of the tokenizers library.

Owns the contract of ``Tokenizer`` for every file format. Refuses to know the formats: a ``Vocabulary`` is what they
have in common. Invariant: a control token that a user typed, once escaped, is encoded as ordinary text; vocabularies
with which that cannot be done are refused.
"""

from collections.abc import Sequence
from itertools import groupby
from unicodedata import combining, is_normalized

from tokenizers import Encoding as BackendEncoding

from cutaway.errors import InvalidValue, UnsupportedModel
from cutaway.text.escape import MARK, Escaper, unescape, unescaped_spans
from cutaway.text.tokenizer import Encoding
from cutaway.text.vocabulary import Vocabulary, contained, spell_out

# What the library encodes in some milliseconds, for which it holds up every other thread.
MAX_HELD_CHARS = 10_000

_NO_END = (
    "the model's files name no token that ends an answer; it goes on to a stop string, to max_tokens, or until the "
    "context is full"
)


class HFTokenizer:
    """The tokenizer of one model; see the ``Tokenizer`` protocol.

    Raises:
        UnsupportedModel: text that a user types could be encoded as a control token whatever is done about it.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._backend = vocabulary.backend
        self.vocab_size = min(len(vocabulary.pieces), vocabulary.max_ids)
        self.bos_id = vocabulary.bos_id
        self.end_ids = vocabulary.end_ids
        self.adds_space = vocabulary.adds_space
        self.notices = vocabulary.notices if vocabulary.end_ids else (*vocabulary.notices, _NO_END)
        spellings = [vocabulary.pieces[token_id] for token_id in sorted(vocabulary.special_ids)]
        for spelling in spellings:
            if len(spelling) < 2 or not set(MARK).isdisjoint(spelling):
                raise _cannot_hide(spelling)
        self._escaper = Escaper(spellings)
        if not vocabulary.hides_controls:
            self._refuse_reachable(spellings)

    def encode(self, text: str) -> Encoding:
        """Encode ``text``; control tokens spelled out in it become control ids."""
        encoded = self._run(text)
        token_ids = tuple(encoded.ids)
        if token_ids and max(token_ids) >= self.vocab_size:
            raise InvalidValue(
                "text",
                f"it holds the token {self.piece(max(token_ids))!r} with the id {max(token_ids)}, "
                f"but the model has rows for {self.vocab_size:,} ids only",
            )
        spans = unescaped_spans(text, encoded.offsets)
        return Encoding(token_ids, spans if is_normalized("NFC", text) else _cover_composed(unescape(text), spans))

    def escape(self, text: str) -> str:
        """Mark ``text`` so that nothing in it becomes a control id."""
        return self._escaper.escape(text)

    def unescape(self, text: str) -> str:
        """Remove the marks of ``escape``."""
        return unescape(text)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that the token stands for."""
        vocabulary = self._vocabulary
        if token_id >= len(vocabulary.pieces) or token_id in vocabulary.unused_ids:
            return b""
        piece = vocabulary.pieces[token_id]
        return piece.encode() if token_id in vocabulary.added_ids else spell_out(piece, vocabulary.alphabet)

    def piece(self, token_id: int) -> str:
        """The token as the vocabulary spells it."""
        pieces = self._vocabulary.pieces
        return pieces[token_id] if token_id < len(pieces) else f"[UNUSED{token_id}]"

    def is_special(self, token_id: int) -> bool:
        """Whether the id is a control token."""
        return token_id in self._vocabulary.special_ids

    def _run(self, text: str) -> BackendEncoding:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidValue(
                "text",
                f"character {error.start} is {text[error.start]!r}, half of a surrogate pair, which is no text",
                hint="decode the text from UTF-8 or UTF-16 before it is sent",
            ) from None
        with contained(UnsupportedModel("the model's tokenizer failed on this text")):
            if len(text) <= MAX_HELD_CHARS:
                return self._backend.encode(text, add_special_tokens=False)
            # The same, but the library lets other threads run meanwhile.
            return self._backend.encode_batch([text], add_special_tokens=False)[0]

    def _refuse_reachable(self, spellings: list[str]) -> None:
        # All in one text: a vocabulary can have thousands of control tokens.
        escaped = "\n".join(self.escape(spelling) for spelling in spellings)
        reached = self._vocabulary.special_ids.intersection(self._run(escaped).ids)
        # The unknown token stands for whatever has no other, so ordinary text may well become it.
        unknown = getattr(self._backend.model, "unk_token", None)
        for token_id in sorted(reached):
            if self.piece(token_id) != unknown:
                raise _cannot_hide(self.piece(token_id))


def _cover_composed(text: str, spans: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Let the span of a composed character cover all that it was composed of; the library gives its first only."""
    groups = [(span, len(list(tokens))) for span, tokens in groupby(spans)]
    followers = [start for (start, _), _ in groups[1:]] + [len(text)]
    covered: list[tuple[int, int]] = []
    for ((start, end), num_tokens), following in zip(groups, followers, strict=True):
        # Marks may be put into another order before they are composed, so each of them counts as a part.
        left_over = text[end:following]
        is_composed = all(map(combining, left_over)) or not is_normalized("NFC", text[start:following])
        covered += [(start, max(end, following) if is_composed else end)] * num_tokens
    return tuple(covered)


def _cannot_hide(spelling: str) -> UnsupportedModel:
    return UnsupportedModel(
        f"the model's control token {spelling[:60]!r} cannot be told from the same characters in ordinary text",
        hint="with this model a user could forge control tokens; use another one",
    )
