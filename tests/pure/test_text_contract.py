"""What every tokenizer promises, fakes and real kinds alike."""

import unicodedata
from concurrent.futures import ThreadPoolExecutor

import pytest
import tiny_text
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_text import texts

from cutaway.errors import InvalidValue
from cutaway.text import hf_tokenizer
from cutaway.text.fake import BOS_ID, CONTROL_TOKENS, ByteTokenizer

SPECIALS = (*tiny_text.CONTROL, *CONTROL_TOKENS.values())
outsides = st.lists(st.sampled_from([*tiny_text.FRAGMENTS, *SPECIALS]), max_size=4).map("".join)
outsides = outsides.filter(lambda text: "\ufdd0" not in text and "\ufdd1" not in text)


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    folder = tiny_text.write_folder(tmp_path_factory.mktemp("tiny"), tiny_text.tokenizer_tree())
    return [
        ByteTokenizer(),
        ByteTokenizer(bos_id=BOS_ID),
        tiny_text.byte_level(),
        tiny_text.byte_level(pre="qwen2", add_bos_token=True),
        tiny_text.byte_level(pre="llama-bpe"),
        tiny_text.sentence_piece(),
        tiny_text.sentence_piece(add_space_prefix=False),
        tiny_text.from_folder(folder),
    ]


@pytest.fixture(params=range(8), ids=lambda at: f"tokenizer {at}", scope="module")
def tokenizer(request, tokenizers):
    return tokenizers[request.param]


@given(text=texts)
def test_unescape_takes_back_what_escape_did(tokenizer, text):
    assert tokenizer.unescape(tokenizer.escape(text)) == text


@given(text=texts)
def test_escaped_text_holds_no_control_token(tokenizer, text):
    assert not any(map(tokenizer.is_special, tokenizer.encode(tokenizer.escape(text)).token_ids))


@given(before=outsides, text=texts.filter(bool), after=outsides)
def test_no_control_token_reaches_into_escaped_text_from_outside(tokenizer, before, text, after):
    encoding = tokenizer.encode(before + tokenizer.escape(text) + after)
    end = len(before) + len(text)
    for token_id, (first, last) in zip(encoding.token_ids, encoding.spans, strict=True):
        if tokenizer.is_special(token_id):
            assert last <= len(before) or first >= end, (before, text, after)


@given(before=outsides, text=texts.filter(str.strip), after=outsides)
def test_white_space_that_a_template_cuts_off_does_not_let_one_in(tokenizer, before, text, after):
    encoding = tokenizer.encode(before + tokenizer.escape(text).strip() + after)
    end = len(before) + len(text.strip())
    for token_id, (first, last) in zip(encoding.token_ids, encoding.spans, strict=True):
        if tokenizer.is_special(token_id):
            assert last <= len(before) or first >= end, (before, text, after)


@given(text=texts)
def test_spans_are_in_order_and_inside_of_the_text(tokenizer, text):
    encoding = tokenizer.encode(tokenizer.escape(text))
    assert len(encoding.spans) == len(encoding.token_ids)
    assert all(0 <= start <= end <= len(text) for start, end in encoding.spans)
    assert list(encoding.spans) == sorted(encoding.spans)
    assert all(token_id < tokenizer.vocab_size for token_id in encoding.token_ids)


@given(text=st.text(max_size=30))
def test_tokens_spell_the_characters_of_their_spans(tokenizer, text):
    encoding = tokenizer.encode(tokenizer.escape(text))
    spelled: dict[tuple[int, int], bytes] = {}
    for token_id, span in zip(encoding.token_ids, encoding.spans, strict=True):
        spelled[span] = spelled.get(span, b"") + tokenizer.token_bytes(token_id)
    joined = b"".join(spelled.values()).decode()
    # SentencePiece spells a space as ▁, and so takes a ▁ for a space.
    expected = (" " if tokenizer.adds_space and text else "") + text
    assert _composed(joined).replace("▁", " ") == _composed(expected).replace("▁", " ")


def test_control_tokens_written_by_a_template_become_control_ids(tokenizer):
    for token_id in range(tokenizer.vocab_size):
        if tokenizer.is_special(token_id):
            spelling = tokenizer.token_bytes(token_id).decode()
            assert tokenizer.encode(spelling).token_ids == (token_id,)
            assert tokenizer.piece(token_id) == spelling


def test_end_tokens_are_control_tokens_of_the_vocabulary(tokenizer):
    assert tokenizer.end_ids
    assert all(tokenizer.is_special(token_id) and token_id < tokenizer.vocab_size for token_id in tokenizer.end_ids)


@settings(max_examples=30)
@given(text=texts)
def test_a_long_text_is_encoded_like_a_short_one(tokenizer, text):
    short = tokenizer.encode(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hf_tokenizer, "MAX_HELD_CHARS", -1)
        assert tokenizer.encode(text) == short


def test_encode_adds_nothing_of_its_own(tokenizer):
    assert tokenizer.encode("") == type(tokenizer.encode("a"))((), ())
    assert not any(map(tokenizer.is_special, tokenizer.encode("tomato").token_ids))


def test_half_of_a_surrogate_pair_is_refused(tokenizer):
    with pytest.raises(InvalidValue, match="surrogate"):
        tokenizer.encode("a\ud800")


def test_ids_beyond_the_vocabulary_stand_for_nothing(tokenizer):
    beyond = tokenizer.vocab_size + 7
    assert tokenizer.token_bytes(beyond) == b""
    assert not tokenizer.is_special(beyond)
    assert str(beyond) in tokenizer.piece(beyond)


@settings(max_examples=10)
@given(st.lists(texts, min_size=8, max_size=8))
def test_threads_may_share_a_tokenizer(tokenizer, several):
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(tokenizer.encode, several)) == [tokenizer.encode(text) for text in several]


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)
