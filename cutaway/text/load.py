"""From a checkpoint to its tokenizer and chat template.

Owns where a checkpoint keeps its template and the names of its control tokens. Refuses to know weights.
"""

from collections.abc import Mapping
from pathlib import Path

from cutaway.errors import CorruptFile
from cutaway.text.hf_tokenizer import HFTokenizer
from cutaway.text.load_tokenizer import load_tokenizer
from cutaway.text.template import MAX_SOURCE_CHARS, ChatTemplate
from cutaway.text.tokenizer import Tokenizer
from cutaway.text.tokenizer_json import TokenizerFolder, read_folder_vocabulary, read_tokenizer_folder, special_token
from cutaway.weights.checkpoint import Checkpoint
from cutaway.weights.metadata import Metadata
from cutaway.weights.tensor_file import map_file

MAX_SOURCE_BYTES = 4 * MAX_SOURCE_CHARS

_TEMPLATE_FILE = "chat_template.jinja"
_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token")
_GGUF_KEYS = {
    "bos_token": "tokenizer.ggml.bos_token_id",
    "eos_token": "tokenizer.ggml.eos_token_id",
    "unk_token": "tokenizer.ggml.unknown_token_id",
    "pad_token": "tokenizer.ggml.padding_token_id",
}


def load_text(checkpoint: Checkpoint) -> tuple[Tokenizer, ChatTemplate | None]:
    """Build what turns messages into ids; without a chat template, the model only continues text.

    Raises:
        ModelError: a file cannot be read.
        CorruptFile: the files are malformed or contradict each other.
        UnsupportedModel: a kind of vocabulary that is not known.
        TemplateError: the template is too long, or the process that renders it cannot be started.
    """
    if checkpoint.format == "gguf":
        tokenizer = load_tokenizer(checkpoint)
        return tokenizer, _load_gguf_template(checkpoint.metadata, tokenizer)
    files = read_tokenizer_folder(checkpoint.path, checkpoint.metadata)
    return HFTokenizer(read_folder_vocabulary(files)), _load_folder_template(checkpoint.path, files)


def _load_gguf_template(metadata: Metadata, tokenizer: Tokenizer) -> ChatTemplate | None:
    if "tokenizer.chat_template" not in metadata:
        return None
    # A padding token may lie beyond the vocabulary, where the embedding has rows without a piece.
    token_ids = {name: metadata.integer(key, minimum=0) for name, key in _GGUF_KEYS.items() if key in metadata}
    variables = {name: tokenizer.piece(token_id) for name, token_id in token_ids.items()}
    return ChatTemplate(metadata.text("tokenizer.chat_template"), variables)


def _load_folder_template(folder: Path, files: TokenizerFolder) -> ChatTemplate | None:
    source = _read_template(folder, files)
    if source is None:
        return None
    named = {name: special_token(files, name) for name in _NAMES}
    return ChatTemplate(source, {name: text for name, text in named.items() if text is not None})


def _read_template(folder: Path, files: TokenizerFolder) -> str | None:
    """The template in its own file, or else in ``tokenizer_config.json``: one, or the default one of several."""
    path = folder / _TEMPLATE_FILE
    if path.exists():
        return _read_bounded(path)
    named = files.config.get("chat_template")
    if named is None or isinstance(named, str):
        return named
    if not isinstance(named, list) or not all(isinstance(entry, Mapping) for entry in named):
        raise CorruptFile(f"{folder}: chat_template must be text or a list of named texts")
    templates = {str(entry.get("name")): entry.get("template") for entry in named}
    source = templates.get("default")
    if not isinstance(source, str):
        raise CorruptFile(f"{folder}: none of the chat templates {sorted(templates)} is named default")
    return source


def _read_bounded(path: Path) -> str:
    with map_file(path) as mapped:
        if len(mapped) > MAX_SOURCE_BYTES:
            raise CorruptFile(f"{path}: the chat template is longer than the limit of {MAX_SOURCE_BYTES:,} bytes")
        data = bytes(mapped)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise CorruptFile(f"{path}: not UTF-8 text") from None
