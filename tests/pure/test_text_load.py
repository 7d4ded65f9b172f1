"""Where checkpoints keep their tokenizer and chat template."""

import subprocess
import sys

import pytest
import tiny_text

from cutaway.errors import CorruptFile, ModelError, TemplateError, UnsupportedModel
from cutaway.text.load import load_text, load_tokenizer
from cutaway.text.template import MAX_SOURCE_CHARS
from cutaway.weights.checkpoint import Checkpoint
from cutaway.weights.metadata import Metadata

HI = [{"role": "user", "content": "hi"}]
NAMES = "{{ bos_token }}|{{ eos_token }}|{{ unk_token }}|{{ pad_token }}"


def checkpoint(path, file_format, metadata):
    return Checkpoint(path, file_format, "llama", metadata, (), "", 0, "F32")


def gguf(metadata, **changes):
    values = {**metadata._values, **{f"tokenizer.{key}": value for key, value in changes.items()}}
    return checkpoint(tiny_text.PATH, "gguf", Metadata(tiny_text.PATH, values))


def folder(path, **files):
    tiny_text.write_folder(path, tiny_text.tokenizer_tree(), **files)
    return checkpoint(path, "safetensors", Metadata(path / "config.json", {}))


def test_a_gguf_file_has_both_in_its_metadata():
    tokenizer, template = load_text(gguf(tiny_text.sentence_piece_metadata(), chat_template=NAMES))
    assert tokenizer.encode("tomato").token_ids
    assert template.render(HI) == "<s>|</s>|<unk>|"


def test_without_a_template_there_is_none(tmp_path):
    assert load_text(gguf(tiny_text.byte_level_metadata()))[1] is None
    assert load_text(folder(tmp_path))[1] is None
    assert load_text(folder(tmp_path, tokenizer_config={"chat_template": None}))[1] is None


@pytest.mark.parametrize(
    "chat_template",
    ["T " + NAMES, [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "T " + NAMES}]],
)
def test_a_folder_has_the_template_in_its_configuration(tmp_path, chat_template):
    config = {"chat_template": chat_template, "bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": None}
    assert load_text(folder(tmp_path, tokenizer_config=config))[1].render(HI) == "T <s>|</s>||"


def test_a_file_of_its_own_comes_first(tmp_path):
    opened = folder(tmp_path, tokenizer_config={"chat_template": "old", "bos_token": "<s>"})
    (tmp_path / "chat_template.jinja").write_text("새 {{ bos_token }}", encoding="utf-8")
    assert load_text(opened)[1].render(HI) == "새 <s>"


@pytest.mark.parametrize("chat_template", [7, {}, ["x"], [{"name": "rag", "template": "x"}], [{"name": "default"}], []])
def test_a_malformed_template_is_refused(tmp_path, chat_template):
    with pytest.raises(CorruptFile, match="chat"):
        load_text(folder(tmp_path, tokenizer_config={"chat_template": chat_template}))


def test_a_template_file_that_is_no_text_or_too_long_is_refused(tmp_path):
    opened = folder(tmp_path)
    path = tmp_path / "chat_template.jinja"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(CorruptFile, match="not UTF-8"):
        load_text(opened)
    path.write_text("x" * (MAX_SOURCE_CHARS + 1))
    with pytest.raises(TemplateError, match="more than the limit"):
        load_text(opened)
    path.write_text("é" * (3 * MAX_SOURCE_CHARS))
    with pytest.raises(CorruptFile, match="longer than the limit"):
        load_text(opened)
    path.unlink()
    path.mkdir()
    with pytest.raises(ModelError, match="not a regular file"):
        load_text(opened)


def test_a_gguf_template_of_another_type_is_refused():
    with pytest.raises(CorruptFile, match=r"chat_template.*must be text"):
        load_text(gguf(tiny_text.byte_level_metadata(), chat_template=7))


def test_a_tokenizer_can_be_had_alone(tmp_path):
    for opened in (gguf(tiny_text.byte_level_metadata(), chat_template=7), folder(tmp_path)):
        assert load_tokenizer(opened).encode("tomato").token_ids


def test_an_unknown_vocabulary_is_refused():
    with pytest.raises(UnsupportedModel, match="'bert'"):
        load_text(gguf(tiny_text.byte_level_metadata(), **{"ggml.model": "bert"}))


def test_loading_text_brings_in_neither_torch_nor_numpy():
    program = (
        "import sys; import cutaway.text.load, cutaway.text.prompt, cutaway.text.detokenizer, cutaway.text.stops; "
        "import cutaway.text.fake; "
        "print([name for name in ('torch', 'numpy', 'jinja2', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
