"""Small vocabularies of each kind, as the files of a model would describe them, and texts that try them."""

import json
from pathlib import Path

from hypothesis import strategies as st

from cutaway.text.escape import MARK
from cutaway.text.gguf_vocab import read_gguf_vocabulary
from cutaway.text.hf_tokenizer import HFTokenizer
from cutaway.text.tokenizer_json import read_folder_vocabulary, read_tokenizer_folder
from cutaway.text.vocabulary import BYTE_TO_CHAR
from cutaway.weights.metadata import Metadata

PATH = Path("tiny.gguf")
CONTROL = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<s>", "</s>")
ADDED = ("<think>", "</think>", "<tool>")
NORMAL_TYPE, UNKNOWN_TYPE, CONTROL_TYPE, ADDED_TYPE, UNUSED_TYPE, BYTE_TYPE = range(1, 7)
MERGES = ("Ġ t", "h e", "Ġt he", "i n", "e r", "l l", "o m", "a t", "Ġ Ġ", "om at", "t omat", "tomat o", "Ġ tomato")

# Pieces of all that matters: control tokens whole and broken, marks, white space, bytes of every length.
FRAGMENTS = (
    *CONTROL,
    *ADDED,
    *(token[:size] for token in CONTROL for size in range(1, len(token))),
    *(token[size:] for token in CONTROL for size in range(1, len(token))),
    *(" ", "  ", "\n", "\t", "\u3000", "\r\n"),
    *(MARK, MARK[0], MARK[1], "\ufdd2", "\ufddf"),
    *("a", "the tomato", "don't", "한국", "e\u0301", "👩‍💻", "\x00", "▁", "Ġ", "<0x41>", "1234", "é", "¡"),
)
texts = st.one_of(st.text(max_size=40), st.lists(st.sampled_from(FRAGMENTS), max_size=10).map("".join))


def byte_level_metadata(**changes: object) -> Metadata:
    """A byte-level vocabulary; ``changes`` replace keys under ``tokenizer.ggml``, ``None`` removes one."""
    words = ["".join(merge.split()) for merge in MERGES]
    tokens = [*BYTE_TO_CHAR.values(), *words, *CONTROL, *ADDED, "[PAD]"]
    types = [NORMAL_TYPE] * (256 + len(words)) + [CONTROL_TYPE] * len(CONTROL) + [ADDED_TYPE] * len(ADDED)
    return _metadata(
        {
            "model": "gpt2",
            "pre": "smollm",
            "tokens": tokens,
            "token_type": [*types, UNUSED_TYPE],
            "merges": list(MERGES),
            "bos_token_id": tokens.index("<|im_start|>"),
            "eos_token_id": tokens.index("<|im_end|>"),
            "add_bos_token": False,
        },
        changes,
    )


def sentence_piece_metadata(**changes: object) -> Metadata:
    """A SentencePiece vocabulary with byte fallback and a space in front of texts; ``changes`` as above."""
    words = ["▁", *"thelomain", "▁t", "he", "▁the", "ll", "om", "at", "omat", "tomat", "tomato", "▁tomato"]
    words = list(dict.fromkeys(words))
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = ["<unk>", *CONTROL, *bytes_, *words, *ADDED]
    types = [UNKNOWN_TYPE] + [CONTROL_TYPE] * len(CONTROL) + [BYTE_TYPE] * 256
    types += [NORMAL_TYPE] * len(words) + [ADDED_TYPE] * len(ADDED)
    scores = [0.0] * (1 + len(CONTROL) + 256) + [-float(at) for at in range(len(words))] + [0.0] * len(ADDED)
    return _metadata(
        {
            "model": "llama",
            "tokens": tokens,
            "token_type": types,
            "scores": scores,
            "bos_token_id": tokens.index("<s>"),
            "eos_token_id": tokens.index("</s>"),
            "unknown_token_id": 0,
        },
        changes,
    )


def byte_level(**changes: object) -> HFTokenizer:
    return HFTokenizer(read_gguf_vocabulary(byte_level_metadata(**changes)))


def sentence_piece(**changes: object) -> HFTokenizer:
    return HFTokenizer(read_gguf_vocabulary(sentence_piece_metadata(**changes)))


def tokenizer_tree() -> dict:
    """A tokenizer.json, with control tokens that are looked for after normalization, as some published ones have."""
    words = ["".join(merge.split()) for merge in MERGES]
    vocab = {token: token_id for token_id, token in enumerate([*BYTE_TO_CHAR.values(), *words])}
    added = [
        {
            "id": len(vocab) + at,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": True,
            "special": token in CONTROL,
        }
        for at, token in enumerate([*CONTROL, *ADDED])
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0},
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": byte_level,
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": [merge.split() for merge in MERGES],
        },
    }


def write_folder(folder: Path, tree: object, **files: object) -> Path:
    """A folder with a tokenizer.json and other JSON files, named by the keywords without ``.json``."""
    folder.mkdir(exist_ok=True)
    for name, content in {"tokenizer": tree, **files}.items():
        (folder / f"{name}.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def from_folder(folder: Path, **model: object) -> HFTokenizer:
    """The tokenizer of a folder whose config.json holds ``model``."""
    config = Metadata(folder / "config.json", model)
    return HFTokenizer(read_folder_vocabulary(read_tokenizer_folder(folder, config)))


def _metadata(values: dict[str, object], changes: dict[str, object]) -> Metadata:
    return Metadata(PATH, {f"tokenizer.ggml.{key}": value for key, value in (values | changes).items()})
