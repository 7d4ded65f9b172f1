"""The table of ways to cut words."""

import pytest
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

from cutaway.errors import UnsupportedModel
from cutaway.text.patterns import check_pattern
from cutaway.text.pre_tokenizers import PRE_TOKENIZATIONS, find_pre_tokenization
from cutaway.text.vocabulary import CHAR_TO_BYTE

SHARED = sorted(PRE_TOKENIZATIONS.keys() & GGUF_PRE_TOKENIZER_SPLITS.keys())
DIFFERENT = sorted({way.patterns: name for name, way in PRE_TOKENIZATIONS.items()}.values())
HOSTILE = (
    "a" * 100_000,
    " " * 100_000,
    " " * 100_000 + "x",
    "\n " * 50_000,
    "'" * 100_000,
    "1" * 100_000,
    "的" * 50_000,
)


def cut(name, text):
    """The words, in characters."""
    return [text[start:end] for _, (start, end) in find_pre_tokenization(name).build().pre_tokenize_str(text)]


def test_the_tables_have_much_in_common():
    assert len(SHARED) >= 15


@pytest.mark.parametrize("name", SHARED)
def test_expressions_are_those_that_transformers_has_under_the_same_name(name):
    assert PRE_TOKENIZATIONS[name].patterns == (GGUF_PRE_TOKENIZER_SPLITS[name],)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpt-2", ["It", "'s", " 12345", " Äpfel", ",", " don", "'t", "  ", " x", "\n"]),
        ("smollm", ["It", "'s", " ", "1", "2", "3", "4", "5", " Äpfel", ",", " don", "'t", "  ", " x", "\n"]),
        ("qwen2", ["It", "'s", " ", "1", "2", "3", "4", "5", " Äpfel", ",", " don", "'t", "  ", " x", "\n"]),
        ("llama-bpe", ["It", "'s", " ", "123", "45", " Äpfel", ",", " don", "'t", "  ", " x", "\n"]),
        ("tekken", ["It", "'s", " ", "1", "2", "3", "4", "5", " Äpfel", ",", " don", "'t", "  ", " x", "\n"]),
        ("gpt-4o", ["It's", " ", "123", "45", " Äpfel", ",", " don't", "  ", " x", "\n"]),
        ("deepseek-v3", ["It", "'s", " ", "123", "45", " Äpfel", ",", " don", "'t", "  ", " x", "\n"]),
        ("default", ["It", "'", "s", " ", "123", "45", " Äpfel", ",", " don", "'", "t", "  ", " x", "\n"]),
        ("falcon", ["It", "'", "s", " ", "123", "45", " Äpfel", ",", " don", "'", "t", "  ", " x", "\n"]),
    ],
)
def test_a_sentence_is_cut_as_the_name_says(name, words):
    assert cut(name, "It's 12345 Äpfel, don't   x\n") == words


@pytest.mark.parametrize("name", PRE_TOKENIZATIONS)
def test_cutting_keeps_every_byte(name):
    text = "It's 12345  Äpfel,\r\n\n don't\t漢字かな 한국어 👩‍💻e\u0301 _x_ <|im_end|> $^~`|=\x00\u00a0 '"
    words = find_pre_tokenization(name).build().pre_tokenize_str(text)
    spelled = "".join(word for word, _ in words)
    assert bytes(CHAR_TO_BYTE[char] for char in spelled).decode() == text


@pytest.mark.parametrize("name", DIFFERENT)
def test_hostile_text_is_cut_without_trying_everything(name):
    # Expressions that look back over what they have seen would take hours here.
    for text in HOSTILE:
        cut(name, text)


@pytest.mark.parametrize("name", DIFFERENT)
def test_the_expressions_pass_the_check_that_foreign_ones_have_to_pass(name):
    for pattern in PRE_TOKENIZATIONS[name].patterns:
        check_pattern(pattern)


@pytest.mark.parametrize(("name", "near"), [("qwen3", "qwen2"), ("llama4-bpe", "llama-bpe"), ("smolm", "smollm")])
def test_an_unknown_name_is_refused_with_the_nearest_known_ones(name, near):
    with pytest.raises(UnsupportedModel, match=f"'{name}'.*{near}") as caught:
        find_pre_tokenization(name)
    assert caught.value.hint


def test_a_name_like_no_other_is_refused_too():
    with pytest.raises(UnsupportedModel, match="known ones are gpt-2"):
        find_pre_tokenization("\x00" * 10_000)
