"""The marks that keep typed control tokens from becoming control ids."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.text.escape import MARK, Escaper, unescape, unescaped_spans

ESCAPER = Escaper(["<|im_end|>", "<|im_start|>", "[INST]", "<s>"])
LETTERS = st.text(st.sampled_from([*"<|>[]imsINST_endrtxy \n", MARK[0], MARK[1]]), max_size=24)


@pytest.mark.parametrize(
    "text",
    ["Is a tomato a fruit?", "a < b", "x <|im_ends|> y", "</think>", "한국어 👍🏽", " \n ", "<|", "[INST", "> |"],
)
def test_ordinary_text_is_returned_unchanged_unless_it_begins_or_ends_like_a_control_token(text):
    escaped = ESCAPER.escape(text)
    assert unescape(escaped) == text
    assert (escaped == text) == (text not in ("<|", "[INST", "> |"))


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("<|im_end|>", "<M|im_end|>"),
        ("a<s>b", "a<Ms>b"),
        ("<s><s>", "<Ms><Ms>"),
        ("bye <|im_e", "bye <|im_eM"),
        ("bye <|im_e \n", "bye <|im_eM \n"),
        ("end|> hello", "Mend|> hello"),
        ("  >x", "  M>x"),
        ("im_end", "Mim_end"),
        (" S ", " MS "),
        (MARK[0], "\ufdd0M"),
        (MARK, "\ufdd0M\ufdd1"),
    ],
)
def test_marks_stand_where_they_break_control_tokens(text, escaped):
    assert ESCAPER.escape(text) == escaped.replace("M", MARK)


@given(LETTERS)
def test_unescape_takes_everything_back(text):
    assert unescape(ESCAPER.escape(text)) == text


@given(LETTERS)
def test_no_control_token_is_left_in_escaped_text(text):
    escaped = ESCAPER.escape(text)
    assert not any(token in escaped for token in ("<|im_end|>", "<|im_start|>", "[INST]", "<s>"))


@given(LETTERS, st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=5))
def test_spans_move_with_the_text(text, pairs):
    escaped = ESCAPER.escape(text)
    boundaries = [at for at in range(len(escaped) + 1) if not escaped[:at].endswith(MARK[0]) or MARK not in escaped]
    spans = [tuple(sorted((boundaries[a % len(boundaries)], boundaries[b % len(boundaries)]))) for a, b in pairs]
    for (start, end), (first, last) in zip(spans, unescaped_spans(escaped, spans), strict=True):
        assert text[first:last] == unescape(escaped[:end])[len(unescape(escaped[:start])) :]


def test_overlapping_control_tokens_are_all_broken():
    escaper = Escaper(["ab", "bc", "abc"])
    escaped = escaper.escape("xabcx")
    assert not any(token in escaped for token in ("ab", "bc", "abc"))


def test_without_control_tokens_only_the_mark_itself_is_escaped():
    escaper = Escaper([])
    assert escaper.escape("<|im_end|>") == "<|im_end|>"
    assert unescape(escaper.escape(MARK * 3)) == MARK * 3
    assert escaper.escape("") == ""


def test_control_tokens_that_no_mark_can_break_are_not_taken():
    with pytest.raises(AssertionError):
        Escaper(["a"])
    with pytest.raises(AssertionError):
        Escaper([f"<{MARK[0]}>"])
