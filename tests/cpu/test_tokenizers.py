"""The tokenizers of the real models give the ids that the models were trained with."""

from functools import cache

import pytest
from text_fuzz import fuzz_texts
from text_reference import GEMMA3, QWEN2, SMOLLM2, build_reference, read_tokens

from cutaway.text.detokenizer import Detokenizer
from cutaway.text.gguf_vocab import read_gguf_vocabulary
from cutaway.text.hf_tokenizer import HFTokenizer
from cutaway.text.tokenizer_json import read_folder_vocabulary, read_tokenizer_folder
from cutaway.weights.checkpoint import open_checkpoint
from cutaway.weights.metadata import Metadata

NUM_TEXTS = 10_000
SEED = 20_260_101
NAMES = (SMOLLM2, QWEN2, GEMMA3)


@pytest.fixture(scope="module")
def load(real_model):
    @cache
    def load(name):
        metadata = open_checkpoint(real_model(name)).metadata
        return metadata, HFTokenizer(read_gguf_vocabulary(metadata))

    return load


@pytest.fixture(scope="module")
def reference(load):
    return cache(lambda name: build_reference(name, load(name)[0]))


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_those_of_the_published_tokenizer(load, reference, name):
    metadata, tokenizer = load(name)
    vocab, types, _ = read_tokens(metadata)
    added = [token for token, token_id in vocab.items() if types[token_id] in (3, 4)][:200]
    backend = reference(name)
    for number, text in enumerate(fuzz_texts(SEED, NUM_TEXTS, added)):
        expected = backend.encode(text, add_special_tokens=False).ids
        assert list(tokenizer.encode(text).token_ids) == expected, f"seed {SEED}, text {number}: {text!r}"


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_of_real_text_decodes_to_what_the_published_tokenizer_decodes(load, reference, name):
    _, tokenizer = load(name)
    backend = reference(name)
    for number, text in enumerate(fuzz_texts(SEED + 1, 2_000, ["\n"])):
        token_ids = tokenizer.encode(text).token_ids
        detokenizer = Detokenizer(tokenizer)
        shown = "".join(map(detokenizer.push, token_ids)) + detokenizer.flush()
        assert shown == backend.decode(token_ids, skip_special_tokens=True), f"text {number}: {text!r}"


@pytest.mark.parametrize("name", NAMES)
def test_escaped_text_has_the_ids_of_a_tokenizer_that_does_not_look_for_control_tokens(load, reference, name):
    metadata, tokenizer = load(name)
    vocab, types, _ = read_tokens(metadata)
    control = [token for token, token_id in vocab.items() if types[token_id] == 3][:200]
    backend = reference(name)
    backend.encode_special_tokens = True
    try:
        for number, text in enumerate(fuzz_texts(SEED + 2, 2_000, control)):
            token_ids = tokenizer.encode(tokenizer.escape(text)).token_ids
            assert not any(map(tokenizer.is_special, token_ids)), f"text {number}: {text!r}"
            assert list(token_ids) == backend.encode(text, add_special_tokens=False).ids, f"text {number}: {text!r}"
    finally:
        backend.encode_special_tokens = False


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_with_tokenizer_json_gives_the_same_ids_as_the_gguf_file(load, reference, name, tmp_path):
    metadata, tokenizer = load(name)
    reference(name).save(str(tmp_path / "tokenizer.json"))
    files = read_tokenizer_folder(tmp_path, Metadata(tmp_path / "config.json", {}))
    from_folder = HFTokenizer(read_folder_vocabulary(files))
    vocab, types, _ = read_tokens(metadata)
    added = [token for token, token_id in vocab.items() if types[token_id] in (3, 4)][:200]
    for number, text in enumerate(fuzz_texts(SEED + 3, 2_000, added)):
        assert from_folder.encode(text) == tokenizer.encode(text), f"text {number}: {text!r}"
        escaped = tokenizer.escape(text)
        assert from_folder.escape(text) == escaped
        assert from_folder.encode(escaped) == tokenizer.encode(escaped), f"text {number}: {text!r}"
    for token_id in (*range(0, tokenizer.vocab_size, 97), *(vocab[token] for token in added)):
        assert from_folder.is_special(token_id) == tokenizer.is_special(token_id)
        if not from_folder.piece(token_id).startswith("[PAD"):  # a name that only the GGUF file gives to unused ids
            assert from_folder.token_bytes(token_id) == tokenizer.token_bytes(token_id)
