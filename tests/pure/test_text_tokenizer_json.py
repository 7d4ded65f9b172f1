"""Vocabularies from Hugging Face style folders: what they mean, and what is wrong with broken or hostile ones."""

import copy
import random

import pytest
from tiny_text import CONTROL, from_folder, tokenizer_tree, write_folder
from tokenizers import Tokenizer as Backend

from cutaway.errors import CorruptFile, CutawayError, UnsupportedModel
from cutaway.text import tokenizer_json
from cutaway.text.detokenizer import Detokenizer
from cutaway.text.prompt import render_prompt
from cutaway.types import Message, Role


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "model"


def build(folder, tree=None, model=None, **files):
    return from_folder(write_folder(folder, tokenizer_tree() if tree is None else tree, **files), **(model or {}))


def changed(path, value):
    """The tree with the node at ``path`` replaced; ``...`` removes it."""
    tree = tokenizer_tree()
    *above, last = path
    node = tree
    for key in above:
        node = node[key]
    if value is ...:
        del node[last]
    else:
        node[last] = value
    return tree


def pieces(tokenizer, text):
    return [tokenizer.piece(token_id) for token_id in tokenizer.encode(text).token_ids]


def spellings(tokenizer, token_ids):
    return [tokenizer.piece(token_id) for token_id in token_ids]


def test_ids_are_those_of_the_library(folder):
    tokenizer = build(folder)
    backend = Backend.from_file(str(folder / "tokenizer.json"))
    backend.no_truncation()
    for text in ("the tomato", "<|im_start|>a</think> é e\u0301", "한국어 <tool>x", "", "a" * 100):
        assert list(tokenizer.encode(text).token_ids) == backend.encode(text, add_special_tokens=False).ids


def test_a_long_text_is_not_cut_whatever_the_file_says(folder):
    assert len(build(folder).encode("a " * 50).token_ids) > 8


def test_control_tokens_hide_even_where_the_file_looks_for_them_in_normalized_text(folder):
    tokenizer = build(folder)
    for spelling in CONTROL:
        assert tokenizer.is_special(tokenizer.encode(spelling).token_ids[0])
        escaped = tokenizer.encode(tokenizer.escape(spelling))
        assert not any(map(tokenizer.is_special, escaped.token_ids))
        assert "".join(spelling[start:end] for start, end in dict.fromkeys(escaped.spans)) == spelling


def test_spans_keep_the_spaces_that_the_file_would_trim(folder):
    assert build(folder).encode("a the b").spans == ((0, 1), (1, 5), (5, 6), (6, 7))


def test_random_dropping_of_merges_is_turned_off(folder):
    tokenizer = build(folder, changed(("model", "dropout"), 0.9))
    assert all(pieces(tokenizer, "the the the") == ["t", "he", "Ġthe", "Ġthe"] for _ in range(20))


def with_bos(tree):
    bos = next(token["id"] for token in tree["added_tokens"] if token["content"] == "<s>")
    tree["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [bos], "tokens": ["<s>"]}},
    }
    return tree


@pytest.mark.parametrize(
    ("tree", "config", "bos"),
    [
        (tokenizer_tree(), {}, None),
        (tokenizer_tree(), {"bos_token": "<s>"}, None),
        (tokenizer_tree(), {"bos_token": "<s>", "add_bos_token": True}, "<s>"),
        (tokenizer_tree(), {"bos_token": {"content": "<|im_start|>"}, "add_bos_token": True}, "<|im_start|>"),
        (tokenizer_tree(), {"add_bos_token": True}, None),
        (tokenizer_tree(), {"bos_token": None, "add_bos_token": True}, None),
        (with_bos(tokenizer_tree()), {}, "<s>"),
        (with_bos(tokenizer_tree()), {"bos_token": "<s>"}, "<s>"),
        (with_bos(tokenizer_tree()), {"bos_token": "<s>", "add_bos_token": False}, None),
    ],
)
def test_bos_is_what_the_files_say(folder, tree, config, bos):
    tokenizer = build(folder, tree, tokenizer_config=config)
    assert (None if tokenizer.bos_id is None else tokenizer.piece(tokenizer.bos_id)) == bos
    assert pieces(tokenizer, "a") == ["a"], "encode never adds it"


def token_id(spelling):
    return next(token["id"] for token in tokenizer_tree()["added_tokens"] if token["content"] == spelling)


@pytest.mark.parametrize(
    ("generation", "model", "config", "ends"),
    [
        ({}, {}, {}, ["<|im_end|>", "<|endoftext|>", "</s>"]),
        ({"eos_token_id": token_id("</s>")}, {}, {}, ["</s>", "<|im_end|>", "<|endoftext|>"]),
        (
            {"eos_token_id": [token_id("<|endoftext|>"), token_id("</s>")]},
            {"eos_token_id": token_id("<|im_end|>")},
            {},
            ["<|endoftext|>", "</s>", "<|im_end|>"],
        ),
        (
            {},
            {"eos_token_id": token_id("</s>")},
            {"eos_token": "<|endoftext|>"},
            ["</s>", "<|endoftext|>", "<|im_end|>"],
        ),
        ({}, {"text_config.eos_token_id": [token_id("</s>")]}, {}, ["</s>", "<|im_end|>", "<|endoftext|>"]),
        (
            {"eos_token_id": None},
            {},
            {"eos_token": {"content": "</think>"}},
            ["</think>", "<|im_end|>", "<|endoftext|>", "</s>"],
        ),
    ],
)
def test_end_tokens_come_from_generation_config_then_config_then_names(folder, generation, model, config, ends):
    tokenizer = build(folder, model=model, generation_config=generation, tokenizer_config=config)
    assert spellings(tokenizer, tokenizer.end_ids) == ends
    assert all(map(tokenizer.is_special, tokenizer.end_ids))


def test_a_vocabulary_without_an_end_token_says_so(folder):
    tree = tokenizer_tree()
    tree["added_tokens"] = []
    tokenizer = build(folder, tree)
    assert tokenizer.end_ids == ()
    assert "no token that ends an answer" in tokenizer.notices[-1]
    assert not build(folder).notices


def test_ids_without_a_row_in_the_model_are_never_given(folder):
    num_rows = token_id("<tool>")
    tokenizer = build(folder, model={"vocab_size": num_rows})
    assert tokenizer.vocab_size == num_rows
    assert pieces(tokenizer, "</think>") == ["</think>"]
    with pytest.raises(CutawayError, match=rf"'<tool>' with the id {num_rows}"):
        tokenizer.encode("a<tool>")


def test_rows_without_a_token_are_unused(folder):
    tokenizer = build(folder, model={"vocab_size": 5_000})
    assert tokenizer.vocab_size == len(tokenizer_tree()["model"]["vocab"]) + len(tokenizer_tree()["added_tokens"])
    assert tokenizer.token_bytes(4_999) == b""


def sentence_piece_tree(decoder_strips=True):
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"tomahe", "▁t", "om", "▁tom"]
    tree = tokenizer_tree()
    vocab = {word: at for at, word in enumerate(words)}
    tree["added_tokens"] = [
        {
            "id": at,
            "content": words[at],
            "special": True,
            "normalized": False,
            **dict.fromkeys(("single_word", "lstrip", "rstrip"), False),
        }
        for at in range(3)
    ]
    tree["normalizer"] = {
        "type": "Sequence",
        "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ],
    }
    tree["pre_tokenizer"] = None
    tree["post_processor"] = None
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if decoder_strips else []
    replace = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    tree["decoder"] = {"type": "Sequence", "decoders": [replace, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip]}
    merges = [["▁", "t"], ["o", "m"], ["▁t", "om"]]
    tree["model"] |= {"vocab": vocab, "merges": merges, "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
    return tree


def test_sentence_piece_vocabularies_come_back_as_text(folder):
    tokenizer = build(folder, sentence_piece_tree())
    assert tokenizer.adds_space
    for text in ("tomato", " tom 한 \n", "é"):
        detokenizer = Detokenizer(tokenizer)
        token_ids = tokenizer.encode(text).token_ids
        backend = Backend.from_file(str(folder / "tokenizer.json"))
        assert "".join(map(detokenizer.push, token_ids)) == text == backend.decode(token_ids)


def test_unknown_characters_become_the_unknown_token_and_are_no_forgery(folder):
    tree = sentence_piece_tree()
    tree["model"]["byte_fallback"] = False
    tokenizer = build(folder, tree)
    assert pieces(tokenizer, "tom한") == ["▁tom", "<unk>"]
    prompt = render_prompt(tokenizer, None, [Message(Role.USER, "tom한")])
    assert prompt.encoding.token_ids == tokenizer.encode("tom한").token_ids


def test_a_decoder_that_strips_nothing_is_believed(folder):
    assert not build(folder, sentence_piece_tree(decoder_strips=False)).adds_space


@pytest.mark.parametrize(("scheme", "adds"), [("always", True), ("first", True), ("never", False)])
def test_metaspace_is_sentence_piece_too(folder, scheme, adds):
    tree = sentence_piece_tree()
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False}
    tree |= {"normalizer": None, "pre_tokenizer": metaspace, "decoder": metaspace}
    tokenizer = build(folder, tree)
    assert tokenizer.adds_space == adds
    assert pieces(tokenizer, "tom")[0] == ("▁tom" if adds else "t")


# Broken and hostile files -------------------------------------------------------------------------------------


UNKNOWN_ADDITION = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "zz", "type_id": 0}}],
    "pair": [],
    "special_tokens": {},
}


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        (("model",), ..., "kind None; only BPE"),
        (("model",), None, "kind None"),
        (("model",), [], "kind None"),
        (("model", "type"), "WordPiece", "'WordPiece'; only BPE"),
        (("model", "type"), "Unigram", "'Unigram'; only BPE"),
        (("model", "vocab"), ..., "cannot?|not a tokenizer"),
        (("model", "vocab"), {}, "not a tokenizer"),
        (("model", "vocab", "a"), -1, "not a tokenizer"),
        (("model", "vocab", "a"), 0, "same id, 0"),
        (("model", "vocab", "a"), 2**32 - 1, "outside the limits|not a tokenizer"),
        (("model", "merges", 0), ["zz", "y"], "zz"),
        (("model", "merges"), "x", "not a tokenizer"),
        (("model", "continuing_subword_prefix"), "##", "parts of words"),
        (("model", "end_of_word_suffix"), "</w>", "parts of words"),
        (("added_tokens", 0, "id"), 5_000, "cannot have the id 5000"),
        (("added_tokens", 0, "id"), "x", "not a tokenizer"),
        (("added_tokens",), [{}], "not a tokenizer"),
        (("added_tokens",), {}, "not a tokenizer"),
        (("normalizer",), {"type": "Nonsense"}, "not a tokenizer"),
        (("pre_tokenizer",), {"type": "Whitespace"}, None),
        (("version",), "9.9", "not a tokenizer"),
        (("post_processor",), {"type": "TemplateProcessing"}, "not a tokenizer"),
        (("post_processor",), UNKNOWN_ADDITION, "'zz' is none of its special_tokens"),
        (("post_processor",), {"type": "Sequence", "processors": [UNKNOWN_ADDITION]}, "'zz' is none of its special"),
    ],
)
def test_a_broken_file_is_refused(folder, path, value, complaint):
    tree = changed(path, value)
    if complaint is None:  # the decoder still says that the vocabulary is byte-level
        build(folder, tree)
        return
    with pytest.raises((CorruptFile, UnsupportedModel), match=complaint):
        build(folder, tree)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "empty"),
        ("[]", "object is expected"),
        ("{", "not valid JSON"),
        ("[" * 100_000, "nested"),
        ('{"a":1,"a":2}', "twice"),
    ],
)
def test_what_is_no_json_object_is_refused(folder, content, complaint):
    with pytest.raises(CorruptFile, match=complaint):
        build(folder, content)


def test_a_folder_without_the_file_is_refused_with_advice(folder):
    folder.mkdir()
    with pytest.raises(UnsupportedModel, match=r"no tokenizer\.json") as caught:
        from_folder(folder)
    assert "transformers" in caught.value.hint


def test_a_vocabulary_that_is_neither_kind_is_refused(folder):
    tree = tokenizer_tree() | dict.fromkeys(("normalizer", "pre_tokenizer", "post_processor", "decoder"))
    with pytest.raises(UnsupportedModel, match="neither"):
        build(folder, tree)


def exploding_tree():
    split = {"type": "Split", "pattern": {"Regex": "(a+)+b"}, "behavior": "Isolated", "invert": False}
    return changed(("pre_tokenizer",), {"type": "Sequence", "pretokenizers": [split, tokenizer_tree()["decoder"]]})


def test_an_expression_that_may_explode_is_refused(folder):
    with pytest.raises(UnsupportedModel, match="exponential"):
        build(folder, exploding_tree())


def test_an_expression_that_the_engine_gives_up_on_is_an_error_and_no_panic(folder, monkeypatch):
    monkeypatch.setattr(tokenizer_json, "check_pattern", lambda pattern: None)
    tokenizer = build(folder, exploding_tree())
    with pytest.raises(UnsupportedModel, match=r"failed on this text.*retry-limit"):
        tokenizer.encode("a" * 100)


def test_replacements_that_blow_a_text_up_are_refused(folder):
    normalizer = {"type": "Replace", "pattern": {"String": "a"}, "content": "b" * 1000}
    with pytest.raises(UnsupportedModel, match="1,000 characters"):
        build(folder, changed(("normalizer",), normalizer))


@pytest.mark.parametrize("spelling", ["the", "x"])
def test_control_tokens_that_text_can_reach_are_refused(folder, spelling):
    tree = tokenizer_tree()
    token = tree["added_tokens"][0] | {"id": tree["model"]["vocab"].get(spelling, 0), "content": spelling}
    tree["model"] |= {"ignore_merges": True}
    if spelling == "the":
        tree["model"]["vocab"]["the"] = token["id"] = len(tree["model"]["vocab"])
        for at, added in enumerate(tree["added_tokens"], start=token["id"] + 1):
            added["id"] = at
    tree["added_tokens"].insert(0, token)
    with pytest.raises(UnsupportedModel, match="cannot be told from"):
        build(folder, tree)


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({"tokenizer_config": {"bos_token": 7}}, "'bos_token' must be text"),
        ({"tokenizer_config": {"eos_token": {"content": []}}}, "'eos_token' must be text"),
        ({"tokenizer_config": "x"}, "not valid JSON"),
        ({"generation_config": {"eos_token_id": 10**6}}, "eos_token_id"),
        ({"generation_config": {"eos_token_id": -1}}, "eos_token_id"),
        ({"generation_config": {"eos_token_id": "x"}}, "eos_token_id"),
        ({"generation_config": []}, "object is expected"),
    ],
)
def test_broken_files_beside_it_are_refused(folder, files, complaint):
    with pytest.raises(CorruptFile, match=complaint):
        build(folder, **files)


@pytest.mark.parametrize("seed", range(6))
def test_files_changed_at_random_build_or_are_refused(folder, seed):
    source = random.Random(seed)
    plain = sentence_piece_tree() if seed % 2 else tokenizer_tree()
    for _ in range(120):
        tree = copy.deepcopy(plain)
        for _ in range(source.randint(1, 3)):
            _mutate(source, tree)
        try:
            tokenizer = build(folder, tree)
            token_ids = tokenizer.encode(tokenizer.escape("the tomato <s> \n é")).token_ids
            Detokenizer(tokenizer).push(token_ids[0] if token_ids else 0)
        except CutawayError:
            continue


def _mutate(source, tree):
    node = tree
    while True:
        key = source.choice(sorted(node)) if isinstance(node, dict) else source.randrange(len(node))
        child = node[key]
        if not isinstance(child, dict | list) or not child or source.random() < 0.2:
            break
        node = child
    if source.random() < 0.2:
        del node[key]
    else:
        node[key] = source.choice(
            [
                None,
                0,
                1,
                -1,
                2**31,
                2**40,
                1.5,
                True,
                False,
                "",
                "x",
                "▁",
                "ByteLevel",
                "Sequence",
                [],
                {},
                [[]],
                ["a", "b"],
                "(",
                "a" * 300,
            ]
        )
