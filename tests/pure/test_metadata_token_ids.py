"""The ids of control tokens in the metadata of a GGUF file stay in their limits when they become text."""

import pytest
import tiny_text

from cutaway.errors import CorruptFile
from cutaway.text.load import load_text
from cutaway.weights.checkpoint import Checkpoint
from cutaway.weights.metadata import Metadata

KEY = "tokenizer.ggml.padding_token_id"


def with_padding(token_id: int) -> Checkpoint:
    values = {**tiny_text.byte_level_metadata()._values, "tokenizer.chat_template": "{{ pad_token }}", KEY: token_id}
    return Checkpoint(tiny_text.PATH, "gguf", "llama", Metadata(tiny_text.PATH, values), (), "", 0, "F32")


def test_a_negative_padding_token_is_refused():
    with pytest.raises(CorruptFile, match=rf"'{KEY}' must be a whole number of at least 0, but is -1"):
        load_text(with_padding(-1))


def test_a_padding_token_is_spelled_for_the_template_even_beyond_the_vocabulary():
    tokenizer, template = load_text(with_padding(0))
    assert template.render([]) == tokenizer.piece(0)
    _, template = load_text(with_padding(1_000_000))
    assert template.render([]) == "[UNUSED1000000]"
