"""What a checkpoint says about its tokens, whatever its file format, and how tokens are spelled.

Owns the description that ``HFTokenizer`` is built from and the two alphabets in which vocabularies spell bytes. Refuses
to know file formats.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from cutaway.errors import CutawayError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokenizers import Tokenizer as Backend

MAX_TOKENS = 2**22

# Spellings that end an answer wherever they are control tokens: what llama.cpp gathers (src/llama-vocab.cpp), most
# specific first. A token that merely looks like one (Gemma has a strike-through </s>) is no control token.
END_SPELLINGS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "<|end_of_turn|>",
    "<turn|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<end_of_utterance>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<｜end▁of▁sentence｜>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<eos>",
    "</s>",
)
# In OpenAI's harmony format, <|end|> only ends one message of several.
_HARMONY = frozenset({"<|return|>", "<|call|>"})


class Alphabet(Enum):
    """How ordinary tokens spell the bytes that they stand for."""

    BYTE_LEVEL = "byte-level"
    SENTENCE_PIECE = "SentencePiece"


@dataclass(frozen=True)
class Vocabulary:
    """Everything about the tokens of one model.

    Attributes:
        backend: turns text into ids. The first step of its normalizer removes ``escape.MARK``, control tokens are
            found in the raw text, and it adds nothing at the ends.
        pieces: the spelling of each id.
        special_ids: control tokens, and the unknown token.
        added_ids: tokens that stand for exactly their spelling and are found in the raw text; control tokens included.
        unused_ids: ids that stand for nothing.
        alphabet: the spelling of all others.
        bos_id, end_ids, adds_space, notices: as in the ``Tokenizer`` protocol.
        max_ids: ids at or above it are not used, since the model has no row for them.
        hides_controls: ordinary text cannot become a control id, since merges were derived without those; otherwise it
            has to be tried out.
    """

    backend: "Backend"
    pieces: Sequence[str]
    special_ids: frozenset[int]
    added_ids: frozenset[int]
    unused_ids: frozenset[int]
    alphabet: Alphabet
    bos_id: int | None
    end_ids: tuple[int, ...]
    adds_space: bool
    notices: tuple[str, ...]
    max_ids: int
    hides_controls: bool


def gather_end_ids(named: Iterable[int], control_ids: Mapping[str, int]) -> tuple[int, ...]:
    """The ids that end an answer: those that the files name, in their order, then well-known control tokens."""
    known = [control_ids[spelling] for spelling in END_SPELLINGS if spelling in control_ids]
    ends = list(dict.fromkeys([*named, *known]))
    if control_ids.keys() >= _HARMONY and "<|end|>" in control_ids:
        ends.remove(control_ids["<|end|>"])
    return tuple(ends)


def _byte_level_alphabet() -> dict[int, str]:
    """The printable stand-in of each byte, as GPT-2 introduced it: itself where it prints, else one from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(0x100 + at) for at, byte in enumerate(others)}


BYTE_TO_CHAR: Mapping[int, str] = _byte_level_alphabet()
CHAR_TO_BYTE: Mapping[str, int] = {char: byte for byte, char in BYTE_TO_CHAR.items()}
SPACE_PIECE = "▁"
BYTE_PIECES: Mapping[str, int] = {f"<0x{byte:02X}>": byte for byte in range(256)}


def spell_out(piece: str, alphabet: Alphabet) -> bytes:
    """The bytes that an ordinary token stands for."""
    if alphabet is Alphabet.BYTE_LEVEL:
        try:
            return bytes(CHAR_TO_BYTE[char] for char in piece)
        except KeyError:
            # Not in the alphabet as a whole: tokenizers takes such a token literally, too.
            return piece.encode()
    if piece in BYTE_PIECES:
        return bytes([BYTE_PIECES[piece]])
    return piece.replace(SPACE_PIECE, " ").encode()


@contextmanager
def contained(error: CutawayError) -> "Iterator[None]":
    """Turn whatever the tokenizers library raises into ``error``, with its reason appended.

    Its panics do not derive from ``Exception``; other errors that do not, like an interrupt, go on.
    """
    try:
        yield
    except (CutawayError, MemoryError):
        raise
    except BaseException as cause:
        if not isinstance(cause, Exception) and type(cause).__name__ != "PanicException":
            raise
        reason = str(cause)[:200]
        raise type(error)(f"{error.message}: {reason}", hint=error.hint) from None
