"""Builds the vocabulary that the metadata of a GGUF file describe.

Owns the keys under ``tokenizer.ggml``. Refuses to know how text is encoded beyond setting the backend up for it.
Two kinds are known: ``gpt2``, byte-level BPE with explicit merges, and ``llama``, SentencePiece BPE, whose merges
follow from the scores of its pieces. Sources: the GGUF specification of ggml; llama.cpp, src/llama-vocab.cpp, for the
defaults; Kudo and Richardson 2018 (SentencePiece).
"""

import gc
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, models, normalizers
from tokenizers import Tokenizer as Backend

from cutaway.errors import CorruptFile, UnsupportedModel
from cutaway.text.escape import MARK
from cutaway.text.pre_tokenizers import find_pre_tokenization
from cutaway.text.vocabulary import (
    BYTE_PIECES,
    END_SPELLINGS,
    MAX_TOKENS,
    SPACE_PIECE,
    Alphabet,
    Vocabulary,
    contained,
    gather_end_ids,
)
from cutaway.weights.metadata import Metadata

MAX_TOKEN_CHARS = 4096
MAX_SPLITS = 2**25

_PREFIX = "tokenizer.ggml."
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)
_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
_MERGE = r"[^ \n]++ [^ \n]++"
_CONVERT_AGAIN = "the file was written by a broken converter; convert the model again, or take another file"


@dataclass(frozen=True, slots=True)
class _Tokens:
    """The token list with its types, checked.

    Attributes:
        path: for messages.
        pieces: spelling of each id, all different.
        types: type of each id that is not an ordinary token.
        ids: id of each spelling.
    """

    path: Path
    pieces: tuple[str, ...]
    types: Mapping[int, int]
    ids: dict[str, int]

    def of_type(self, *types: int) -> frozenset[int]:
        """The ids of one of the types."""
        return frozenset(token_id for token_id, kind in self.types.items() if kind in types)


def read_gguf_vocabulary(metadata: Metadata) -> Vocabulary:
    """Build the vocabulary of a GGUF file.

    Raises:
        CorruptFile: keys are missing or contradict each other.
        UnsupportedModel: a kind of vocabulary, or a way to cut words, that is not known.
    """
    kind = metadata.text(_PREFIX + "model")
    build = {"gpt2": _build_byte_level, "llama": _build_sentence_piece}.get(kind)
    if build is None:
        raise UnsupportedModel(
            f"{metadata.path}: the vocabulary is of kind {kind[:60]!r}; known are gpt2 (byte-level BPE) "
            "and llama (SentencePiece BPE)",
            hint="use a model with one of those, as Llama, Qwen, Mistral, Gemma 3 and SmolLM have",
        )
    with _collector_paused():
        return build(metadata, _read_tokens(metadata))


def _build_byte_level(metadata: Metadata, tokens: _Tokens) -> Vocabulary:
    name = metadata.text(_PREFIX + "pre", default="default")
    way = find_pre_tokenization(name)
    merges = _read_merges(metadata, tokens)
    with contained(CorruptFile(f"{tokens.path}: the merges do not fit the tokens", hint=_CONVERT_AGAIN)):
        model = models.BPE(tokens.ids, merges, ignore_merges=way.ignore_merges)
    backend = Backend(model)
    steps: list[normalizers.Normalizer] = [normalizers.Replace(MARK, "")]
    backend.normalizer = normalizers.Sequence([*steps, normalizers.NFC()] if way.nfc else steps)
    backend.pre_tokenizer = way.build()
    notices: tuple[str, ...] = ()
    if _PREFIX + "pre" not in metadata:
        notices = (
            "the model's file does not say how words are cut before they are merged; the old default is used, "
            "which may give other tokens than the model was trained with",
        )
    return _finish(metadata, tokens, backend, Alphabet.BYTE_LEVEL, add_bos=way.add_bos, notices=notices)


def _build_sentence_piece(metadata: Metadata, tokens: _Tokens) -> Vocabulary:
    scores: Sequence[float] = metadata.numbers(_PREFIX + "scores")
    if len(scores) != len(tokens.pieces):
        raise _mismatch(metadata, "scores", len(scores), len(tokens.pieces))
    tokens, scores = _restore_runs_of_spaces(tokens, scores)
    unknown_id = min(tokens.of_type(_UNKNOWN), default=None)
    unknown_id = _token_id(metadata, tokens, "unknown_token_id", default=unknown_id)
    unknown = None if unknown_id is None else tokens.pieces[unknown_id]
    merges = _derive_merges(tokens, scores)
    with contained(CorruptFile(f"{tokens.path}: not a vocabulary that can be used", hint=_CONVERT_AGAIN)):
        model = models.BPE(tokens.ids, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    backend = Backend(model)
    adds_space = metadata.flag(_PREFIX + "add_space_prefix", default=True)
    steps: list[normalizers.Normalizer] = [normalizers.Replace(MARK, "")]
    if adds_space:
        steps.append(normalizers.Prepend(SPACE_PIECE))
    backend.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", SPACE_PIECE)])
    return _finish(metadata, tokens, backend, Alphabet.SENTENCE_PIECE, add_bos=True, adds_space=adds_space)


def _finish(
    metadata: Metadata,
    tokens: _Tokens,
    backend: Backend,
    alphabet: Alphabet,
    *,
    add_bos: bool,
    adds_space: bool = False,
    notices: tuple[str, ...] = (),
) -> Vocabulary:
    """Add the tokens that are found in the raw text, and the ids with a role."""
    bos_id = _token_id(metadata, tokens, "bos_token_id", default=tokens.ids.get("<s>"))
    named_ends = [_token_id(metadata, tokens, key) for key in _END_KEYS]
    ends = [token_id for token_id in named_ends if token_id is not None]
    special_ids = tokens.of_type(_CONTROL, _UNKNOWN)
    # A file without types still says which tokens begin and end texts.
    if _PREFIX + "token_type" not in metadata:
        special_ids |= {token_id for token_id in [bos_id, *ends] if token_id is not None}
    user_ids = tokens.of_type(_USER_DEFINED) - special_ids
    add_bos = metadata.flag(_PREFIX + "add_bos_token", default=add_bos)
    if add_bos and bos_id is None:
        raise CorruptFile(f"{tokens.path}: texts have to begin with BOS, but no token is named as it")
    backend.add_special_tokens([_added(tokens.pieces[token_id], special=True) for token_id in sorted(special_ids)])
    backend.add_tokens([_added(tokens.pieces[token_id], special=False) for token_id in sorted(user_ids)])
    return Vocabulary(
        backend=backend,
        pieces=tokens.pieces,
        special_ids=special_ids,
        added_ids=special_ids | user_ids,
        unused_ids=tokens.of_type(_UNUSED),
        alphabet=alphabet,
        bos_id=bos_id if add_bos else None,
        end_ids=gather_end_ids(ends, {tokens.pieces[token_id]: token_id for token_id in special_ids}),
        adds_space=adds_space,
        notices=notices,
        max_ids=len(tokens.pieces),
        hides_controls=alphabet is Alphabet.SENTENCE_PIECE,
    )


def _read_tokens(metadata: Metadata) -> _Tokens:
    pieces = metadata.strings(_PREFIX + "tokens")
    path = metadata.path
    if not 1 <= len(pieces) <= MAX_TOKENS:
        raise CorruptFile(f"{path}: {len(pieces):,} tokens are outside the limits, 1 to {MAX_TOKENS:,}")
    if "" in pieces:
        pieces = tuple(piece or f"[EMPTY_{token_id}]" for token_id, piece in enumerate(pieces))
    longest = max(map(len, pieces))
    if longest > MAX_TOKEN_CHARS:
        raise CorruptFile(f"{path}: a token of {longest:,} characters is longer than the limit of {MAX_TOKEN_CHARS:,}")
    ids = dict(zip(pieces, range(len(pieces)), strict=True))
    if len(ids) != len(pieces):
        twice = next(token_id for token_id, piece in enumerate(pieces) if ids[piece] != token_id)
        raise CorruptFile(
            f"{path}: the token {pieces[twice][:60]!r} has two ids, {twice} and {ids[pieces[twice]]}",
            hint=_CONVERT_AGAIN,
        )
    return _Tokens(path, pieces, _read_types(metadata, ids), ids)


def _read_types(metadata: Metadata, ids: Mapping[str, int]) -> Mapping[int, int]:
    """The types of all tokens that are not ordinary ones."""
    if _PREFIX + "token_type" not in metadata:
        # An old file. What spells a byte in SentencePiece is one, and well-known control tokens are that.
        bytes_ = {ids[piece]: _BYTE for piece in BYTE_PIECES if piece in ids}
        return bytes_ | {ids[piece]: _CONTROL for piece in END_SPELLINGS if piece in ids}
    types = metadata.integers(_PREFIX + "token_type", minimum=0, maximum=255)
    if len(types) != len(ids):
        raise _mismatch(metadata, "token types", len(types), len(ids))
    return {token_id: kind for token_id, kind in enumerate(types) if kind != _NORMAL}


def _read_merges(metadata: Metadata, tokens: _Tokens) -> list[tuple[str, str]]:
    """The pairs of ``a b`` lines, first one first, without those that would spell a control token."""
    lines = metadata.strings(_PREFIX + "merges")
    # One pass in C over everything is several times faster than a split for each line.
    joined = "\n".join(lines)
    if lines and not (re.fullmatch(rf"(?:{_MERGE}\n)*+{_MERGE}", joined) and joined.count("\n") == len(lines) - 1):
        bad = next(line for line in lines if not re.fullmatch(_MERGE, line))
        raise CorruptFile(
            f"{tokens.path}: the merge {bad[:60]!r} is not two tokens with a space between", hint=_CONVERT_AGAIN
        )
    halves = joined.replace("\n", " ").split(" ") if joined else []
    merges = list(zip(halves[::2], halves[1::2], strict=True))
    forbidden = {
        (piece[:at], piece[at:])
        for piece in (tokens.pieces[token_id] for token_id in tokens.of_type(_CONTROL, _UNKNOWN))
        for at in range(1, len(piece))
        if piece[:at] in tokens.ids and piece[at:] in tokens.ids
    }
    return [merge for merge in merges if merge not in forbidden] if forbidden else merges


def _restore_runs_of_spaces(tokens: _Tokens, scores: Sequence[float]) -> tuple[_Tokens, Sequence[float]]:
    """Spell runs of spaces as the model's authors did.

    Gemma has pieces of two spaces and more. Converters write them as user-defined tokens of plain spaces, without a
    score. They are ordinary pieces whose merges come before all others, shorter ones first.
    """
    runs = {token_id: SPACE_PIECE * len(tokens.pieces[token_id]) for token_id in _runs_of_spaces(tokens)}
    if not runs:
        return tokens, scores
    best = max(scores)
    restored = list(scores)
    pieces = list(tokens.pieces)
    ids = dict(tokens.ids)
    for token_id, piece in runs.items():
        del ids[pieces[token_id]]
        ids[piece] = token_id
        pieces[token_id] = piece
        restored[token_id] = best + 1 + MAX_TOKEN_CHARS - len(piece)
    types = {token_id: kind for token_id, kind in tokens.types.items() if token_id not in runs}
    return _Tokens(tokens.path, tuple(pieces), types, ids), restored


def _runs_of_spaces(tokens: _Tokens) -> Iterator[int]:
    for token_id in tokens.of_type(_USER_DEFINED):
        piece = tokens.pieces[token_id]
        if len(piece) > 1 and not piece.strip(" ") and SPACE_PIECE * len(piece) not in tokens.ids:
            yield token_id


def _derive_merges(tokens: _Tokens, scores: Sequence[float]) -> list[tuple[str, str]]:
    """The merges of a SentencePiece vocabulary: each way to put an ordinary piece together, best score first.

    SentencePiece merges the neighbours whose union has the best score. Ways to the same piece have the same score;
    there the longer left half goes first, which is what taking the leftmost pair first amounts to in a run of equal
    characters. Pieces that are not ordinary are never the result of a merge.

    Raises:
        CorruptFile: the pieces are so long that trying every way to part them would take minutes.
    """
    pieces, ids = tokens.pieces, tokens.ids
    ordinary = [token_id for token_id in range(len(pieces)) if token_id not in tokens.types]
    num_splits = sum(len(pieces[token_id]) for token_id in ordinary)
    if num_splits > MAX_SPLITS:
        raise CorruptFile(
            f"{tokens.path}: pieces of {num_splits:,} characters are more than the limit of {MAX_SPLITS:,}"
        )
    ordinary.sort(key=scores.__getitem__, reverse=True)
    return [
        (left, right)
        for piece in map(pieces.__getitem__, ordinary)
        for at in range(len(piece) - 1, 0, -1)
        if (left := piece[:at]) in ids and (right := piece[at:]) in ids
    ]


def _token_id(metadata: Metadata, tokens: _Tokens, key: str, default: int | None = None) -> int | None:
    """The id under ``key``; one that is no token's is refused."""
    if _PREFIX + key not in metadata:
        return default
    return metadata.integer(_PREFIX + key, minimum=0, maximum=len(tokens.pieces) - 1)


def _mismatch(metadata: Metadata, name: str, length: int, num_tokens: int) -> CorruptFile:
    return CorruptFile(f"{metadata.path}: {length:,} {name} for {num_tokens:,} tokens", hint=_CONVERT_AGAIN)


def _added(piece: str, *, special: bool) -> AddedToken:
    return AddedToken(piece, normalized=False, special=special)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Keep the garbage collector from walking a million new strings and pairs, none of which can be garbage."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
