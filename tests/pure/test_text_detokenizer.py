"""Text from a stream of tokens: whole characters, nothing lost, nothing added."""

import unicodedata

import pytest
import tiny_text
from hypothesis import given
from hypothesis import strategies as st

from cutaway.text.detokenizer import Detokenizer, spell_text
from cutaway.text.fake import CONTROL_TOKENS, ByteTokenizer

byte_streams = st.one_of(
    st.binary(max_size=40),
    st.text(max_size=12).map(str.encode),
    # Characters of all lengths, cut and mixed.
    st.lists(
        st.sampled_from([b"a", b"\xed", b"\x95\x9c", b"\xf0\x9f", b"\x91\x8d", b"\xe2\x82", b"\xff", b"\xc0"])
    ).map(b"".join),
)


def decode(tokenizer, token_ids):
    detokenizer = Detokenizer(tokenizer)
    return [*map(detokenizer.push, token_ids), detokenizer.flush()]


@given(byte_streams)
def test_joined_deltas_are_the_bytes_decoded_at_once(data):
    assert "".join(decode(ByteTokenizer(), data)) == data.decode("utf-8", "replace")


@given(byte_streams)
def test_what_is_held_is_what_has_not_been_shown(data):
    detokenizer = Detokenizer(ByteTokenizer())
    for count, byte in enumerate(data, start=1):
        detokenizer.push(byte)
        assert len(detokenizer.held) <= 3
        assert data[:count].endswith(detokenizer.held)
    detokenizer.flush()
    assert detokenizer.held == b""


@given(st.text(max_size=20))
def test_no_delta_of_a_sound_text_shows_a_broken_character(text):
    deltas = decode(ByteTokenizer(), text.encode())
    assert all(delta in text for delta in deltas)
    assert sum(map(len, deltas)) == len(text)


@given(st.text(max_size=20), st.lists(st.sampled_from(sorted(CONTROL_TOKENS)), min_size=1, max_size=4), st.randoms())
def test_control_tokens_give_no_text_wherever_they_stand(text, controls, source):
    token_ids = list(text.encode())
    for control in controls:
        token_ids.insert(source.randint(0, len(token_ids)), control)
    assert "".join(decode(ByteTokenizer(), token_ids)) == text


def test_an_emoji_family_comes_in_whole_characters():
    text = "👩‍👩‍👧‍👦 가족 𠮷"
    deltas = [delta for delta in decode(ByteTokenizer(), text.encode()) if delta]
    assert deltas == list(text)


def test_the_space_that_encoding_adds_is_taken_away_once():
    tokenizer = tiny_text.sentence_piece()
    assert tokenizer.adds_space
    for text in ("tomato", " tomato", "  tomato", " "):
        assert "".join(decode(tokenizer, tokenizer.encode(text).token_ids)) == text


def test_the_space_between_a_prompt_and_what_continues_it_stays():
    tokenizer = tiny_text.sentence_piece()
    prompt, answer = tokenizer.encode("the").token_ids, tokenizer.encode("tomato").token_ids
    for previous_id, text in ((prompt[-1], " tomato"), (tokenizer.bos_id, "tomato")):
        assert "".join(map(Detokenizer(tokenizer, previous_id).push, answer)) == text


def test_a_space_that_nobody_added_stays():
    for tokenizer in (tiny_text.sentence_piece(add_space_prefix=False), tiny_text.byte_level()):
        assert not tokenizer.adds_space
        assert "".join(decode(tokenizer, tokenizer.encode(" tomato").token_ids)) == " tomato"


@pytest.mark.parametrize("tokenizer", [tiny_text.byte_level(), tiny_text.sentence_piece()])
@given(text=st.text(max_size=20))
def test_a_text_comes_back_through_real_vocabularies(tokenizer, text):
    token_ids = tokenizer.encode(tokenizer.escape(text)).token_ids
    assert "".join(decode(tokenizer, token_ids)) == (text.replace("▁", " ") if tokenizer.adds_space else text)


@given(st.lists(st.integers(0, 300)))
def test_any_ids_at_all_give_text(token_ids):
    tokenizer = tiny_text.sentence_piece()
    ordinary = [token_id for token_id in token_ids if not tokenizer.is_special(token_id)]
    whole = b"".join(map(tokenizer.token_bytes, ordinary)).decode("utf-8", "replace")
    assert "".join(decode(tokenizer, token_ids)) == whole.removeprefix(" ")


@given(byte_streams)
def test_the_text_of_tokens_is_their_bytes_decoded_at_once_and_spans_cover_it(data):
    text, spans = spell_text(ByteTokenizer(), data)
    assert text == data.decode("utf-8", "replace")
    assert list(spans) == sorted(spans)
    assert all(start < end <= len(text) for start, end in spans)
    assert set(range(len(text))) == {at for start, end in spans for at in range(start, end)}


@pytest.mark.parametrize("kind", [tiny_text.byte_level, tiny_text.sentence_piece])
@given(text=tiny_text.texts)
def test_tokens_of_a_text_spell_it_control_tokens_included(kind, text):
    tokenizer = kind()
    encoding = tokenizer.encode(tokenizer.escape(text))
    spelled, _ = spell_text(tokenizer, encoding.token_ids)
    plain = text.replace("▁", " ") if tokenizer.adds_space else text
    if not any(added in text for added in tiny_text.ADDED) and "<unk>" not in spelled:
        assert composed(spelled) == composed(plain)


def composed(text):
    return unicodedata.normalize("NFC", text)


def test_the_space_in_front_of_a_text_is_added_behind_control_tokens_too():
    tokenizer = tiny_text.sentence_piece()
    for text in ("<s>the tomato</s>tomato", "the<s> tomato"):
        assert spell_text(tokenizer, tokenizer.encode(text).token_ids)[0] == text
