"""Builds the vocabulary of a Hugging Face style folder: ``tokenizer.json`` and the small files beside it.

Owns the meaning of ``tokenizer.json``, ``tokenizer_config.json`` and ``generation_config.json`` for tokens. Refuses to
know chat templates. The files are not trusted: sizes are bounded, expressions are checked before they run, and ids have
to be what the file says that they are.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, normalizers, processors
from tokenizers import Tokenizer as Backend

from cutaway.errors import CorruptFile, UnsupportedModel
from cutaway.text.escape import MARK
from cutaway.text.patterns import check_pattern
from cutaway.text.vocabulary import MAX_TOKENS, SPACE_PIECE, Alphabet, Vocabulary, contained, gather_end_ids
from cutaway.weights.json_file import read_json
from cutaway.weights.metadata import Metadata, flatten
from cutaway.weights.tensor_file import FETCH_AGAIN

MAX_REPLACEMENT_CHARS = 256

_FILE = "tokenizer.json"
_CONFIG_FILE = "tokenizer_config.json"
_GENERATION_FILE = "generation_config.json"


@dataclass(frozen=True, slots=True)
class TokenizerFolder:
    """The parsed files about tokens in one folder.

    Attributes:
        path: of ``tokenizer.json``.
        tree: what it says.
        source: its text.
        config: what ``tokenizer_config.json`` says, if it is there.
        generation: the keys of ``generation_config.json``, if it is there.
        model: the keys of ``config.json``.
    """

    path: Path
    tree: Mapping[str, object]
    source: str
    config: Mapping[str, object]
    generation: Metadata
    model: Metadata


def read_tokenizer_folder(folder: Path, model: Metadata) -> TokenizerFolder:
    """Read the files.

    Raises:
        UnsupportedModel: there is no ``tokenizer.json``.
        CorruptFile: a file is malformed.
        ModelError: a file cannot be read.
    """
    path = folder / _FILE
    if not path.exists():
        raise UnsupportedModel(
            f"{folder}: there is no {_FILE}",
            hint="a tokenizer.model or vocab.json alone is not read; save the tokenizer again with transformers, "
            "or use a GGUF file of the model",
        )
    tree, data = read_json(path)
    generation_path = folder / _GENERATION_FILE
    generation = Metadata(generation_path, flatten(generation_path, _read_optional(generation_path)))
    return TokenizerFolder(path, tree, data.decode(), _read_optional(folder / _CONFIG_FILE), generation, model)


def _read_optional(path: Path) -> Mapping[str, object]:
    return read_json(path)[0] if path.exists() else {}


def read_folder_vocabulary(files: TokenizerFolder) -> Vocabulary:
    """Build the vocabulary.

    Raises:
        CorruptFile: the files are malformed or contradict each other.
        UnsupportedModel: a kind of vocabulary that is not known.
    """
    alphabet = _check_tree(files)
    with contained(CorruptFile(f"{files.path}: not a tokenizer that can be read", hint=FETCH_AGAIN)):
        backend = Backend.from_str(files.source)
    added = _check_added(files, backend)
    pieces, unused_ids = _list_pieces(files, backend)
    bos_id, adds_bos = _find_bos(files, backend)
    ends = _find_ends(files, backend, len(pieces))
    special = {token.content: token_id for token_id, token in added.items() if token.special}
    for token_id in (bos_id, *ends):
        if token_id is not None and token_id not in unused_ids and len(pieces[token_id]) > 1:
            special[pieces[token_id]] = token_id
    _prepare(backend, [added.get(token_id) or AddedToken(piece) for piece, token_id in special.items()])
    return Vocabulary(
        backend=backend,
        pieces=pieces,
        special_ids=frozenset(special.values()),
        added_ids=frozenset(added) | frozenset(special.values()),
        unused_ids=unused_ids,
        alphabet=alphabet,
        bos_id=bos_id if adds_bos else None,
        end_ids=gather_end_ids(ends, special),
        adds_space=_decoder_strips(files.tree.get("decoder")),
        notices=(),
        max_ids=_num_rows(files),
        hides_controls=False,
    )


def special_token(files: TokenizerFolder, name: str) -> str | None:
    """A named token of ``tokenizer_config.json``, which spells it as text or as an object with ``content``.

    Raises:
        CorruptFile: it is something else.
    """
    value = files.config.get(name)
    text = value.get("content") if isinstance(value, dict) else value
    if text is not None and not isinstance(text, str):
        raise CorruptFile(f"{files.path.with_name(_CONFIG_FILE)}: {name!r} must be text, but is {text!r:.60}")
    return text


def _check_tree(files: TokenizerFolder) -> Alphabet:
    """Refuse what is not known or not safe, before anything is built from it."""
    tree = files.tree
    model = tree.get("model")
    kind = model.get("type", "BPE") if isinstance(model, dict) else None
    if not isinstance(model, dict) or kind != "BPE":
        raise UnsupportedModel(f"{files.path}: the vocabulary is of kind {kind!r}; only BPE is known")
    if model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        raise UnsupportedModel(f"{files.path}: vocabularies that mark parts of words are not known")
    kinds = set()
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        for node in _walk(tree.get(part)):
            kinds.add(str(node.get("type")))
            _check_node(files, node)
    if "ByteLevel" in kinds:
        return Alphabet.BYTE_LEVEL
    if "Metaspace" in kinds or any(SPACE_PIECE in node.values() for node in _walk(tree.get("normalizer"))):
        return Alphabet.SENTENCE_PIECE
    raise UnsupportedModel(f"{files.path}: neither a byte-level nor a SentencePiece vocabulary")


def _check_node(files: TokenizerFolder, node: Mapping[str, object]) -> None:
    pattern = node.get("Regex")
    if isinstance(pattern, str):
        check_pattern(pattern)
    for key in ("content", "prepend", "replacement"):
        text = node.get(key)
        if isinstance(text, str) and len(text) > MAX_REPLACEMENT_CHARS:
            raise UnsupportedModel(
                f"{files.path}: a replacement of {len(text):,} characters is longer than {MAX_REPLACEMENT_CHARS}"
            )


def _walk(tree: object) -> Iterator[Mapping[str, object]]:
    """All objects in a tree."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            yield node
            pending += node.values()
        elif isinstance(node, list):
            pending += node


def _check_added(files: TokenizerFolder, backend: Backend) -> Mapping[int, AddedToken]:
    """The added tokens, with the ids that the file gives them. The library gives other ids where there are gaps."""
    added = backend.get_added_tokens_decoder()
    entries = files.tree.get("added_tokens") or []
    assert isinstance(entries, list), "the library has read it"
    for entry in entries:
        found = added.get(entry["id"])
        if found is None or found.content != entry["content"]:
            raise CorruptFile(
                f"{files.path}: the added token {entry['content'][:60]!r} cannot have the id {entry['id']}",
                hint=FETCH_AGAIN,
            )
    return added


def _list_pieces(files: TokenizerFolder, backend: Backend) -> tuple[Sequence[str], frozenset[int]]:
    """The spelling of each id, and the ids that have none."""
    vocabulary = backend.get_vocab(with_added_tokens=True)
    size = max(vocabulary.values(), default=-1) + 1
    if not 1 <= size <= MAX_TOKENS:
        raise CorruptFile(f"{files.path}: {size:,} ids are outside the limits, 1 to {MAX_TOKENS:,}")
    pieces: list[str | None] = [None] * size
    for piece, token_id in vocabulary.items():
        if pieces[token_id] is not None:
            raise CorruptFile(
                f"{files.path}: the tokens {pieces[token_id]!r} and {piece!r} have the same id, {token_id}",
                hint=FETCH_AGAIN,
            )
        pieces[token_id] = piece
    unused = frozenset(token_id for token_id, piece in enumerate(pieces) if piece is None)
    return [f"[UNUSED{token_id}]" if piece is None else piece for token_id, piece in enumerate(pieces)], unused


def _find_bos(files: TokenizerFolder, backend: Backend) -> tuple[int | None, bool]:
    """The id of BOS, and whether texts begin with it: by name, or else by what the file adds to an empty text."""
    _check_additions(files, files.tree.get("post_processor"))
    with contained(CorruptFile(f"{files.path}: what is added to a text is malformed", hint=FETCH_AGAIN)):
        added = backend.encode("", add_special_tokens=True).ids
    named = special_token(files, "bos_token")
    bos_id = None if named is None else backend.token_to_id(named)
    if bos_id is None and added:
        bos_id = added[0]
    wanted = files.config.get("add_bos_token")
    adds_bos = wanted if isinstance(wanted, bool) else bool(added) and added[0] == bos_id
    return bos_id, adds_bos and bos_id is not None


def _check_additions(files: TokenizerFolder, processor: object) -> None:
    """Refuse a template of added tokens that names an unknown one, which the library would answer with a panic."""
    if not isinstance(processor, Mapping):
        return
    inner = processor.get("processors")
    for part in inner if isinstance(inner, list) else []:
        _check_additions(files, part)
    known = processor.get("special_tokens")
    templates = [processor.get(name) for name in ("single", "pair")]
    pieces = [piece for template in templates if isinstance(template, list) for piece in template]
    added = [piece.get("SpecialToken") for piece in pieces if isinstance(piece, Mapping)]
    for name in (token.get("id") for token in added if isinstance(token, Mapping)):
        if not isinstance(known, Mapping) or name not in known:
            raise CorruptFile(
                f"{files.path}: what is added to a text is malformed: {name!r} is none of its special_tokens",
                hint=FETCH_AGAIN,
            )


def _find_ends(files: TokenizerFolder, backend: Backend, num_pieces: int) -> list[int]:
    """The end tokens that the files name; generation_config.json knows best what ends an answer."""
    ends: list[int] = []
    for source in (files.generation, files.model):
        for key in ("eos_token_id", "text_config.eos_token_id"):
            if key in source:
                ends += source.integers(key, minimum=0, maximum=num_pieces - 1)
                break
    named = special_token(files, "eos_token")
    named_id = None if named is None else backend.token_to_id(named)
    return ends if named_id is None else [*ends, named_id]


def _prepare(backend: Backend, special: Sequence[AddedToken]) -> None:
    """Make the backend what ``Vocabulary`` says: marks vanish first, control tokens are found in the raw text."""
    backend.add_special_tokens(
        [
            AddedToken(
                token.content,
                single_word=token.single_word,
                lstrip=token.lstrip,
                rstrip=token.rstrip,
                normalized=False,
                special=True,
            )
            for token in special
        ]
    )
    remove_marks = normalizers.Replace(MARK, "")
    old = backend.normalizer
    backend.normalizer = remove_marks if old is None else normalizers.Sequence([remove_marks, old])
    # The template that adds BOS is not needed any more, and another step would shorten spans.
    backend.post_processor = processors.Sequence([])
    backend.no_truncation()
    backend.no_padding()
    if getattr(backend.model, "dropout", None) is not None:
        backend.model.dropout = None


def _decoder_strips(decoder: object) -> bool:
    for node in _walk(decoder):
        if node.get("type") == "Strip" and node.get("content") == " " and node.get("start"):
            return True
        if node.get("type") == "Metaspace":
            return node.get("prepend_scheme", "always") != "never" and node.get("add_prefix_space", True) is not False
    return False


def _num_rows(files: TokenizerFolder) -> int:
    for key in ("vocab_size", "text_config.vocab_size"):
        if key in files.model:
            return files.model.integer(key, minimum=1, maximum=MAX_TOKENS)
    return MAX_TOKENS
