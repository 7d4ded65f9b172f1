"""Vocabularies from GGUF metadata: what they mean, and what is wrong with broken ones."""

import gc
import math
import random
from itertools import pairwise

import pytest
import tiny_text
from hypothesis import given
from hypothesis import strategies as st
from tiny_text import (
    ADDED,
    ADDED_TYPE,
    CONTROL,
    CONTROL_TYPE,
    NORMAL_TYPE,
    byte_level,
    byte_level_metadata,
    sentence_piece,
    sentence_piece_metadata,
)

from cutaway.errors import CorruptFile, CutawayError, UnsupportedModel
from cutaway.text import gguf_vocab
from cutaway.text.gguf_vocab import read_gguf_vocabulary
from cutaway.text.hf_tokenizer import HFTokenizer
from cutaway.weights.metadata import Metadata

TOKENS = "tokenizer.ggml.tokens"


def pieces(tokenizer, text):
    return [tokenizer.piece(token_id) for token_id in tokenizer.encode(text).token_ids]


def test_byte_pairs_are_merged_in_the_order_of_the_merges():
    assert pieces(byte_level(), "the tomato") == ["t", "he", "Ġt", "omat", "o"]


def test_control_and_added_tokens_are_found_in_the_text():
    assert pieces(byte_level(), "<|im_start|>a</think>b") == ["<|im_start|>", "a", "</think>", "b"]


def test_escaped_text_keeps_ordinary_added_tokens():
    tokenizer = byte_level()
    assert pieces(tokenizer, tokenizer.escape("a</think><s>")) == ["a", "</think>", "<", "s", ">"]


def test_the_longest_of_several_tokens_is_found():
    metadata = byte_level_metadata()
    tokens = [*metadata.strings(TOKENS), "<s><s>"]
    types = [*metadata.integers("tokenizer.ggml.token_type"), CONTROL_TYPE]
    tokenizer = byte_level(tokens=tokens, token_type=types)
    assert pieces(tokenizer, "<s><s><s>") == ["<s><s>", "<s>"]
    assert not any(map(tokenizer.is_special, tokenizer.encode(tokenizer.escape("<s><s><s>")).token_ids))


def test_a_whole_word_wins_over_merges_where_the_model_wants_it():
    metadata = byte_level_metadata()
    tokens = [*metadata.strings(TOKENS), "hello"]
    types = [*metadata.integers("tokenizer.ggml.token_type"), NORMAL_TYPE]
    changes = {"tokens": tokens, "token_type": types}
    assert pieces(byte_level(**changes, pre="llama-bpe"), "hello") == ["hello"]
    assert pieces(byte_level(**changes, pre="qwen2"), "hello") == ["he", "ll", "o"]


def test_characters_are_composed_where_the_published_tokenizer_does_it():
    assert byte_level(pre="qwen2").encode("e\u0301").token_ids == byte_level(pre="qwen2").encode("é").token_ids
    assert byte_level(pre="smollm").encode("e\u0301").token_ids != byte_level(pre="smollm").encode("é").token_ids


@pytest.mark.parametrize(
    ("changes", "has_bos"),
    [({}, False), ({"add_bos_token": None}, False), ({"add_bos_token": True}, True)],
)
def test_byte_level_vocabularies_begin_with_bos_only_if_they_say_so(changes, has_bos):
    assert (byte_level(**changes).bos_id is not None) == has_bos


@pytest.mark.parametrize("pre", ["llama-bpe", "tekken"])
def test_some_ways_of_cutting_words_come_with_bos(pre):
    tokenizer = byte_level(pre=pre, add_bos_token=None)
    assert tokenizer.bos_id is not None
    assert tokenizer.piece(tokenizer.bos_id) == "<|im_start|>"


def test_sentence_piece_vocabularies_begin_with_bos_unless_they_say_otherwise():
    assert sentence_piece().piece(sentence_piece().bos_id) == "<s>"
    assert sentence_piece(bos_token_id=None).piece(sentence_piece(bos_token_id=None).bos_id) == "<s>"
    assert sentence_piece(add_bos_token=False).bos_id is None


def test_end_tokens_are_those_named_and_then_those_known():
    tokenizer = byte_level()
    assert [tokenizer.piece(token_id) for token_id in tokenizer.end_ids] == ["<|im_end|>", "<|endoftext|>", "</s>"]
    tokenizer = byte_level(eos_token_id=tokenizer.end_ids[1], eot_token_id=tokenizer.end_ids[2])
    assert [tokenizer.piece(token_id) for token_id in tokenizer.end_ids] == ["<|endoftext|>", "</s>", "<|im_end|>"]


def test_a_token_that_only_looks_like_an_end_does_not_end_answers():
    types = [
        ADDED_TYPE if token == "</s>" else kind
        for token, kind in zip(
            byte_level_metadata().strings(TOKENS),
            byte_level_metadata().integers("tokenizer.ggml.token_type"),
            strict=True,
        )
    ]
    tokenizer = byte_level(token_type=types)
    assert "</s>" not in [tokenizer.piece(token_id) for token_id in tokenizer.end_ids]
    assert pieces(tokenizer, tokenizer.escape("</s>")) == ["</s>"]


def test_in_the_harmony_format_the_end_of_a_message_is_not_the_end():
    metadata = byte_level_metadata()
    more = ["<|return|>", "<|call|>", "<|end|>"]
    tokenizer = byte_level(
        tokens=[*metadata.strings(TOKENS), *more],
        token_type=[*metadata.integers("tokenizer.ggml.token_type"), *[CONTROL_TYPE] * 3],
    )
    ends = {tokenizer.piece(token_id) for token_id in tokenizer.end_ids}
    assert ends >= {"<|return|>", "<|call|>"}
    assert "<|end|>" not in ends


def test_unused_ids_stand_for_nothing():
    tokenizer = byte_level()
    unused = tokenizer.vocab_size - 1
    assert (tokenizer.piece(unused), tokenizer.token_bytes(unused)) == ("[PAD]", b"")


def test_an_empty_token_gets_a_name():
    tokens = list(byte_level_metadata().strings(TOKENS))
    tokens[-1] = ""
    assert byte_level(tokens=tokens).piece(len(tokens) - 1) == f"[EMPTY_{len(tokens) - 1}]"


def test_without_token_types_named_and_known_tokens_are_control_tokens():
    for tokenizer in (byte_level(token_type=None), sentence_piece(token_type=None)):
        special = {
            tokenizer.piece(token_id) for token_id in range(tokenizer.vocab_size) if tokenizer.is_special(token_id)
        }
        assert special >= {"<|im_end|>", "<|endoftext|>", "</s>"}
        assert special <= set(CONTROL)


def test_a_missing_way_to_cut_words_is_assumed_and_reported():
    assert "old default" in byte_level(pre=None).notices[0]
    assert byte_level(pre="default").notices == ()


def test_merges_that_would_spell_a_control_token_are_left_out():
    metadata = byte_level_metadata()
    tokens = [*metadata.strings(TOKENS), "</", "s>"]
    types = [*metadata.integers("tokenizer.ggml.token_type"), NORMAL_TYPE, NORMAL_TYPE]
    merges = [*tiny_text.MERGES, "< /", "s >", "</ s>"]
    tokenizer = byte_level(tokens=tokens, token_type=types, merges=merges, pre="command-r")
    assert not any(map(tokenizer.is_special, tokenizer.encode(tokenizer.escape("</s>")).token_ids))


@pytest.mark.parametrize("spelling", ["x", "hello", "\ufdd0x"])
def test_control_tokens_that_text_can_reach_are_refused(spelling):
    metadata = byte_level_metadata()
    tokens = [token for token in metadata.strings(TOKENS) if token != spelling] + [spelling]
    types = [NORMAL_TYPE] * (len(tokens) - len(CONTROL) - len(ADDED) - 2)
    types += [CONTROL_TYPE] * len(CONTROL) + [ADDED_TYPE] * len(ADDED) + [5, CONTROL_TYPE]
    with pytest.raises(UnsupportedModel, match="cannot be told from"):
        byte_level(
            tokens=tokens, token_type=types, pre="llama-bpe", bos_token_id=None, eos_token_id=None, add_bos_token=False
        )


# SentencePiece ------------------------------------------------------------------------------------------------


def naive_sentence_piece(metadata, text):
    """Merge the neighbours whose union has the best score, leftmost first, until none is a piece; then bytes."""
    tokens = metadata.strings(TOKENS)
    types = metadata.integers("tokenizer.ggml.token_type")
    scores = metadata.numbers("tokenizer.ggml.scores")
    ids = {token: token_id for token_id, token in enumerate(tokens)}
    score = {token: scores[token_id] for token, token_id in ids.items() if types[token_id] == NORMAL_TYPE}
    symbols = list("▁" + text.replace(" ", "▁")) if text else []
    while True:
        unions = [(score.get(a + b, -math.inf), -at) for at, (a, b) in enumerate(pairwise(symbols))]
        best, position = max(unions, default=(-math.inf, 0))
        if best == -math.inf:
            break
        at = -position
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
    return [
        token_id
        for symbol in symbols
        for token_id in ([ids[symbol]] if symbol in ids else [ids[f"<0x{byte:02X}>"] for byte in symbol.encode()])
    ]


@given(st.text("thelomain ▁é한", max_size=30))
def test_pieces_are_those_of_the_definition(text):
    metadata = sentence_piece_metadata()
    tokenizer = HFTokenizer(read_gguf_vocabulary(metadata))
    assert list(tokenizer.encode(text).token_ids) == naive_sentence_piece(metadata, text)


def test_the_space_in_front_comes_after_each_control_token_too():
    assert pieces(sentence_piece(), "the<s>the") == ["▁the", "<s>", "▁the"]
    assert pieces(sentence_piece(add_space_prefix=False), "the<s>the") == ["t", "he", "<s>", "t", "he"]


def test_a_typed_byte_piece_is_text():
    tokenizer = sentence_piece()
    assert tokenizer.token_bytes(tokenizer.encode("\n").token_ids[-1]) == b"\n"
    spelled = b"".join(map(tokenizer.token_bytes, tokenizer.encode("<0x0A>").token_ids))
    assert spelled == b" <0x0A>"


def test_runs_of_spaces_are_pieces_as_the_model_was_trained_with():
    metadata = sentence_piece_metadata()
    tokens = [*metadata.strings(TOKENS), "  ", "   ", "    "]
    types = [*metadata.integers("tokenizer.ggml.token_type"), *[ADDED_TYPE] * 3]
    scores = [*metadata.numbers("tokenizer.ggml.scores"), *[-1000.0] * 3]
    tokenizer = sentence_piece(tokens=tokens, token_type=types, scores=scores, add_space_prefix=False)
    assert pieces(tokenizer, "t   the") == ["t", "▁▁▁", "t", "he"]
    assert pieces(tokenizer, "t    the") == ["t", "▁▁▁▁", "t", "he"]
    assert tokenizer.token_bytes(len(tokens) - 1) == b"    "


# Broken files -------------------------------------------------------------------------------------------------

NUM_TOKENS = len(byte_level_metadata().strings(TOKENS))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"model": None}, "no 'tokenizer.ggml.model'"),
        ({"tokens": None}, "no 'tokenizer.ggml.tokens'"),
        ({"tokens": []}, "0 tokens are outside"),
        ({"tokens": [1, 2]}, "list of strings"),
        ({"tokens": "abc"}, "token types for 1 tokens"),
        ({"tokens": ["a"] * NUM_TOKENS}, "'a' has two ids, 0 and"),
        ({"tokens": ["a" * 5000]}, "5,000 characters"),
        ({"token_type": [1]}, f"1 token types for {NUM_TOKENS:,} tokens"),
        ({"token_type": [1.5] * NUM_TOKENS}, "whole numbers"),
        ({"token_type": [-1] * NUM_TOKENS}, "at least 0"),
        ({"merges": None}, "no 'tokenizer.ggml.merges'"),
        ({"merges": ["Ġt"]}, "'Ġt' is not two tokens"),
        ({"merges": ["h e", "h e r", "h"]}, "'h e r' is not two tokens"),
        ({"merges": ["h  e"]}, "not two tokens"),
        ({"merges": [" h e"]}, "not two tokens"),
        ({"merges": ["h e "]}, "not two tokens"),
        ({"merges": [""]}, "not two tokens"),
        ({"merges": ["h\ne f"]}, "not two tokens"),
        ({"merges": ["h zzz"]}, "zzz"),
        ({"merges": ["h q"]}, "hq"),
        ({"bos_token_id": NUM_TOKENS}, "bos_token_id"),
        ({"bos_token_id": -1}, "bos_token_id"),
        ({"bos_token_id": "x"}, "bos_token_id"),
        ({"eos_token_id": 2**32}, "eos_token_id"),
        ({"eot_token_id": NUM_TOKENS}, "eot_token_id"),
        ({"add_bos_token": 7}, "true or false"),
        ({"pre": 3}, "must be text"),
    ],
)
def test_a_broken_byte_level_vocabulary_is_refused(changes, complaint):
    with pytest.raises(CorruptFile, match=complaint):
        byte_level(**changes)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"scores": None}, "no 'tokenizer.ggml.scores'"),
        ({"scores": [1.0]}, "1 scores for"),
        ({"scores": [math.nan] * len(sentence_piece_metadata().strings(TOKENS))}, "finite"),
        ({"scores": ["a"]}, "finite"),
        ({"unknown_token_id": 10**6}, "unknown_token_id"),
        ({"bos_token_id": 10**6}, "bos_token_id"),
        ({"add_space_prefix": "yes"}, "true or false"),
    ],
)
def test_a_broken_sentence_piece_vocabulary_is_refused(changes, complaint):
    with pytest.raises(CorruptFile, match=complaint):
        sentence_piece(**changes)


def test_a_vocabulary_that_wants_bos_but_names_none_is_refused():
    tokens = [token.replace("<s>", "<t>") for token in sentence_piece_metadata().strings(TOKENS)]
    with pytest.raises(CorruptFile, match="no token is named"):
        sentence_piece(tokens=tokens, bos_token_id=None)


def test_pieces_too_long_to_take_apart_are_refused(monkeypatch):
    monkeypatch.setattr(gguf_vocab, "MAX_SPLITS", 10)
    with pytest.raises(CorruptFile, match="limit of 10"):
        sentence_piece()


@pytest.mark.parametrize("kind", ["bert", "t5", "rwkv", "", "x" * 1000])
def test_other_kinds_of_vocabulary_are_refused_by_name(kind):
    with pytest.raises(UnsupportedModel, match="known are gpt2") as caught:
        byte_level(model=kind)
    assert caught.value.hint


def test_an_unknown_way_to_cut_words_is_refused():
    with pytest.raises(UnsupportedModel, match=r"'qwen9'.*qwen2"):
        byte_level(pre="qwen9")


@pytest.mark.parametrize("build", [byte_level_metadata, sentence_piece_metadata])
@pytest.mark.parametrize("seed", range(8))
def test_metadata_changed_at_random_build_or_are_refused(build, seed):
    source = random.Random(seed)
    values = dict(build()._values)
    for _ in range(250):
        changed = dict(values)
        for key in source.sample(sorted(values), k=source.randint(1, 3)):
            changed[key] = _mutate(source, changed[key])
        try:
            HFTokenizer(read_gguf_vocabulary(Metadata(tiny_text.PATH, changed))).encode("the tomato <s> \n é")
        except CutawayError:
            continue


def _mutate(source, value):
    kind = source.randint(0, 3)
    if kind == 0 or not isinstance(value, list):
        return source.choice(
            [None, 0, -1, 2**40, 1.5, math.inf, True, "", "x", "a b", [], [None], ["a"], [1], [2.0], "llama"]
        )
    changed = list(value)
    at = source.randrange(len(changed))
    if kind == 1:
        changed[at] = source.choice(
            ["", "a", " ", "a b", "\n", "<s>", "\ufdd0", "\ud800", 3, 4, 6, -5, 1e30, math.nan, None]
        )
    elif kind == 2:
        del changed[at : at + source.randint(1, 3)]
    else:
        changed[at] = changed[source.randrange(len(changed))]
    return changed


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_is_left_as_it_was(enabled):
    was = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        byte_level()
        with pytest.raises(CorruptFile):
            byte_level(merges=["a"])
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if was else gc.disable)()
