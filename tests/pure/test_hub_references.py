import pytest

from cutaway.errors import UnknownModel, UsageError
from cutaway.hub.huggingface import choose_files
from cutaway.hub.reference import HubReference, parse_reference


@pytest.mark.parametrize(
    ("text", "repo_id", "filename"),
    [
        ("hf:org/repo", "org/repo", None),
        ("hf:Org-1/Repo_2.5", "Org-1/Repo_2.5", None),
        ("hf:org/repo:model.gguf", "org/repo", "model.gguf"),
        ("hf:org/repo:folder/model Q4.gguf", "org/repo", "folder/model Q4.gguf"),
    ],
)
def test_references_are_read_and_written_back(text, repo_id, filename):
    assert parse_reference(text) == HubReference(repo_id, filename)
    assert str(parse_reference(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        *("hf:", "hf:repo", "hf:org/repo/more", "hf:/repo", "hf:org/", "hf:org/re po", "hf:../repo", "hf:org/..repo"),
        *("hf:org/re..po", "hf:org/re--po", "hf:org/repo@main", "hf:https://example.org/x", "hf:org/" + "r" * 97),
        *("hf:org/repo:", "hf:org/repo:/model.gguf", "hf:org/repo:../model.gguf", "hf:org/repo:a/../../m.gguf"),
        *("hf:org/repo:a//m.gguf", "hf:org/repo:a\\m.gguf", "hf:org/repo:m\0.gguf", "hf:org/repo:./m.gguf"),
        *("hf:org/repo:model.bin", "hf:org/repo:model.safetensors", "hf:org/repo:m\n.gguf"),
    ],
)
def test_references_that_could_lead_elsewhere_are_refused(text):
    with pytest.raises(UsageError):
        parse_reference(text)


def choose(reference, *names):
    return choose_files(parse_reference(reference), names)


def test_the_only_gguf_file_is_taken():
    assert choose("hf:o/r", "README.md", "m.gguf", "imatrix.dat") == ("m.gguf",)


def test_several_gguf_files_must_be_told_apart_by_name():
    with pytest.raises(UsageError) as caught:
        choose("hf:o/r", "m-Q4_0.gguf", "m-Q8_0.gguf", "README.md")
    assert "hf:o/r:m-Q4_0.gguf" in caught.value.message
    assert "hf:o/r:m-Q8_0.gguf" in caught.value.message
    assert choose("hf:o/r:m-Q8_0.gguf", "m-Q4_0.gguf", "m-Q8_0.gguf") == ("m-Q8_0.gguf",)


def test_all_parts_of_a_split_model_count_as_one():
    names = [f"q4/m-{number:05d}-of-00002.gguf" for number in (1, 2)]
    assert choose("hf:o/r", *names) == tuple(names)
    assert choose(f"hf:o/r:{names[1]}", *names, "other.gguf") == tuple(names)


def test_a_missing_file_is_answered_with_the_nearest_ones():
    with pytest.raises(UnknownModel) as caught:
        choose("hf:o/r:model-q4.gguf", "model-Q4_0.gguf", "model-Q8_0.gguf")
    assert "model-q4.gguf" in caught.value.message
    assert "model-Q4_0.gguf" in caught.value.hint


def test_a_missing_part_of_a_split_model_is_named():
    with pytest.raises(UnknownModel, match="m-00002-of-00002"):
        choose("hf:o/r:m-00001-of-00002.gguf", "m-00001-of-00002.gguf")


def test_the_safetensors_model_at_the_top_wins_over_files_in_folders():
    names = ["config.json", "model.safetensors", "tokenizer.json", "onnx/model.safetensors", "original/config.json"]
    assert choose("hf:o/r", *names, "modeling.py") == ("config.json", "tokenizer.json", "model.safetensors")


@pytest.mark.parametrize("names", [[], ["config.json", "pytorch_model.bin"], ["model.safetensors"]])
def test_a_repository_without_a_readable_model_is_refused(names):
    with pytest.raises(UsageError, match="neither"):
        choose("hf:o/r", *names)
