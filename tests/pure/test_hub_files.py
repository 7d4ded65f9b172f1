import json
import re
from pathlib import Path

import pytest
from model_bytes import safetensors_bytes
from standins import no_permission_for

from cutaway.errors import CorruptFile, UnknownModel, UsageError
from cutaway.hub.files import ModelFormat, files_at, select_folder_files, split_parts
from cutaway.weights.safetensors_header import INDEX_FILE, SINGLE_FILE, read_safetensors_folder


def fill(folder, *names):
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_bytes(name.encode())
    return folder


def test_a_gguf_file_is_a_model_of_one_file(tmp_path):
    path = fill(tmp_path, "small.gguf") / "small.gguf"
    model = files_at(path)
    assert (model.name, model.path, model.format, model.files) == ("small", path, ModelFormat.GGUF, (path,))
    assert model.num_bytes == len("small.gguf")


@pytest.mark.parametrize("named", [1, 2, 3])
def test_any_part_of_a_split_model_leads_to_all_parts_from_the_first_on(tmp_path, named):
    names = [f"big-{number:05d}-of-00003.gguf" for number in (1, 2, 3)]
    fill(tmp_path, *names)
    model = files_at(tmp_path / names[named - 1])
    assert model.path == tmp_path / names[0]
    assert model.files == tuple(tmp_path / name for name in names)


def test_a_missing_part_of_a_split_model_is_named(tmp_path):
    fill(tmp_path, "big-00001-of-00003.gguf", "big-00003-of-00003.gguf")
    with pytest.raises(CorruptFile, match=r"part 2 of 3 .* missing.*big-00002-of-00003\.gguf"):
        files_at(tmp_path / "big-00001-of-00003.gguf")


@pytest.mark.parametrize("name", ["x-00000-of-00002.gguf", "x-00003-of-00002.gguf", "x-00001-of-99999.gguf"])
def test_split_numbers_that_make_no_sense_are_refused(name):
    with pytest.raises(CorruptFile):
        split_parts(name)


def test_a_folder_is_read_without_anything_that_can_carry_code(tmp_path):
    folder = fill(
        tmp_path / "model",
        *("config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"),
        *("model.safetensors.index.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"),
        *("chat_template.jinja", "modeling_evil.py", "pytorch_model.bin", "README.md", "training_args.pt"),
    )
    model = files_at(folder)
    assert model.format is ModelFormat.SAFETENSORS
    assert model.name == "model"
    assert model.path == folder
    assert {file.name for file in model.files} == {
        *("config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"),
        *("model.safetensors.index.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"),
        "chat_template.jinja",
    }


INDEX = "model.safetensors.index.json"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["model.safetensors", "consolidated.safetensors"], ["model.safetensors"]),
        (["model.safetensors", INDEX, *SHARDS], ["model.safetensors"]),
        ([INDEX, *SHARDS, "consolidated.safetensors", "model.fp16.safetensors"], [INDEX, *SHARDS]),
        ([INDEX, "a.safetensors", "b.safetensors"], [INDEX, "a.safetensors", "b.safetensors"]),
        (["weights.safetensors"], []),
        ([*SHARDS], []),
        (["adapter_model.safetensors", "notes.txt"], []),
    ],
    ids=lambda value: " ".join(value),
)
def test_the_weights_chosen_are_those_that_can_be_opened(tmp_path, names, chosen):
    tensors = [name for name in (chosen or names) if name.endswith(".safetensors")]
    for name in names:
        content = safetensors_bytes({name: ("F32", (1,), b"\0\0\0\0")}) if name in tensors else b"{"
        (tmp_path / name).write_bytes(content)
    if INDEX in names:
        (tmp_path / INDEX).write_text(json.dumps({"weight_map": {name: name for name in tensors}}))
    assert select_folder_files(["config.json", *names]) == (("config.json", *chosen) if chosen else ())
    if chosen:
        assert [file.path.name for file in read_safetensors_folder(tmp_path)] == tensors
    else:
        with pytest.raises(UnknownModel, match=f"neither {SINGLE_FILE} nor {INDEX_FILE}"):
            read_safetensors_folder(tmp_path)


def test_weights_without_a_config_or_an_index_without_files_are_no_model():
    assert select_folder_files(["model.safetensors"]) == ()
    assert select_folder_files(["config.json", INDEX]) == ()


@pytest.mark.parametrize(
    ("names", "kind", "words"),
    [
        ([], UnknownModel, "no config.json"),
        (["model.safetensors"], UnknownModel, "no config.json"),
        (["config.json"], UnknownModel, r"neither model\.safetensors nor model\.safetensors\.index\.json"),
        (["config.json", "weights.safetensors"], UnknownModel, r"there is only weights\.safetensors"),
        (["config.json", "pytorch_model.bin"], UsageError, "can run code"),
        (["a.gguf", "b.gguf"], UnknownModel, r"name one of them: a\.gguf, b\.gguf"),
    ],
)
def test_a_folder_that_is_no_model_says_what_it_lacks(tmp_path, names, kind, words):
    folder = fill(tmp_path / "model", *names)
    with pytest.raises(kind) as caught:
        files_at(folder)
    assert re.search(words, str(caught.value))
    assert str(folder) in caught.value.message


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("model.safetensors", UnknownModel, "name its folder"),
        ("pytorch_model.bin", UsageError, "can run code"),
        ("model.pt", UsageError, "can run code"),
        ("notes.txt", UnknownModel, r"not a \.gguf file"),
    ],
)
def test_a_file_of_another_kind_is_refused_with_a_hint(tmp_path, name, kind, words):
    with pytest.raises(kind, match=words):
        files_at(fill(tmp_path, name) / name)


def test_what_is_neither_file_nor_folder_is_refused():
    with pytest.raises(UnknownModel, match="neither"):
        files_at(Path("/dev/null"))


def test_a_folder_that_may_not_be_read_is_named(tmp_path):
    folder = fill(tmp_path / "model", "config.json")
    with no_permission_for(folder, 0o000), pytest.raises(UnknownModel, match="Permission denied"):
        files_at(folder)
