import os
import subprocess
import sys

import pytest
from standins import model_in_wheels

from cutaway.errors import CorruptFile, CutawayError, UnknownModel, UsageError
from cutaway.hub.catalog import catalog_of
from cutaway.hub.resolve import ensure, resolve
from cutaway.hub.store import ModelStore

ENTRY, _ = model_in_wheels("tiny-model", [b"0123456789"])


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return ModelStore(tmp_path / "cache", "http://127.0.0.1:9/simple", catalog_of([ENTRY]))


def put(store, name, content):
    store.models_dir.mkdir(parents=True, exist_ok=True)
    store.path(name).write_bytes(content)


def unwanted(num_done, num_total):
    raise AssertionError("nothing has to be downloaded")


def test_a_built_in_name_leads_to_its_file(store):
    put(store, "tiny-model", b"0123456789")
    model = resolve("tiny-model", store)
    assert (model.name, model.path) == ("tiny-model", store.path("tiny-model"))
    assert ensure("tiny-model", store, unwanted) == model


def test_a_built_in_model_that_is_not_here_yet_can_be_pulled(store):
    with pytest.raises(UnknownModel) as caught:
        resolve("tiny-model", store)
    assert caught.value.hint == "cutaway pull tiny-model"


def test_a_built_in_model_of_the_wrong_size_is_called_corrupt_with_both_sizes(store):
    put(store, "tiny-model", b"01234")
    with pytest.raises(CorruptFile, match="5 bytes, but 10 were published") as caught:
        resolve("tiny-model", store)
    assert "cutaway pull tiny-model" in caught.value.hint


def test_a_file_that_was_put_into_the_store_has_a_name(store):
    put(store, "my.own", b"x")
    assert resolve("my.own", store).path == store.path("my.own")


def test_a_built_in_name_wins_over_a_folder_of_that_name(store, tmp_path):
    put(store, "tiny-model", b"0123456789")
    (tmp_path / "tiny-model").mkdir()
    assert resolve("tiny-model", store).path == store.path("tiny-model")


def test_a_folder_may_be_named_without_a_slash(store, tmp_path):
    (tmp_path / "mine").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "mine" / name).write_bytes(b"x")
    assert resolve("mine", store).name == "mine"
    assert resolve("./mine", store).files == resolve("mine", store).files
    assert resolve(str(tmp_path / "mine"), store).name == "mine"


def test_a_path_to_a_gguf_file_is_taken_as_it_is(store, tmp_path, monkeypatch):
    (tmp_path / "m.gguf").write_bytes(b"x")
    monkeypatch.setenv("HOME", str(tmp_path))
    for reference in ("m.gguf", "./m.gguf", str(tmp_path / "m.gguf"), "~/m.gguf"):
        assert resolve(reference, store).path.samefile(tmp_path / "m.gguf")
    assert ensure("m.gguf", store, unwanted).name == "m"


@pytest.mark.parametrize(
    "reference",
    ["missing.gguf", "./missing", "/no/such/model.gguf", "~no-such-user/m.gguf", "a\0b.gguf", "x" * 300 + "/"],
)
def test_a_path_that_leads_nowhere_is_an_unknown_model(store, reference):
    for action in (resolve, ensure):
        with pytest.raises(UnknownModel):
            action(reference, store)


def test_a_path_below_a_file_is_an_unknown_model(store, tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(UnknownModel, match="cannot be reached: Not a directory"):
        resolve("file/m.gguf", store)


def test_a_path_that_looks_like_a_repository_is_answered_with_the_right_form(store):
    with pytest.raises(UnknownModel) as caught:
        resolve("org/repo", store)
    assert "hf:org/repo" in caught.value.hint


def test_an_unknown_name_is_answered_with_the_nearest_one(store):
    with pytest.raises(UnknownModel) as caught:
        resolve("tiny-modle", store)
    assert caught.value.hint == "did you mean tiny-model?"


def test_a_name_like_no_other_is_answered_with_the_forms_that_are_possible(store):
    with pytest.raises(UnknownModel) as caught:
        ensure("zzzz", store)
    for form in ("tiny-model", ".gguf", "config.json", "hf:ORG/REPO"):
        assert form in caught.value.hint


@pytest.mark.parametrize("reference", ["", " ", "\t"])
def test_an_empty_name_is_refused(store, reference):
    with pytest.raises(UsageError, match="empty"):
        resolve(reference, store)


def test_a_repository_that_was_not_pulled_says_how_to_pull_it(store):
    with pytest.raises(UnknownModel) as caught:
        resolve("hf:org/repo", store)
    assert caught.value.hint == "cutaway pull hf:org/repo"


def test_a_repository_that_was_pulled_is_found_without_the_network(store, tmp_path):
    target = tmp_path / "elsewhere.gguf"
    target.write_bytes(b"x")
    store.link("hf:org/repo", target)
    model = ensure("hf:org/repo", store, unwanted)
    assert (model.name, model.path) == ("hf:org/repo", target)


@pytest.mark.parametrize("reference", ["tiny model", "é", "a" * 5000, "-", "--", "%s", "hf:", "*", "C:\\m"])
def test_odd_names_end_in_an_error_of_the_tree(store, reference):
    with pytest.raises(CutawayError) as caught:
        ensure(reference, store)
    assert caught.value.exit_code == 2


def test_finding_a_model_needs_neither_torch_nor_http():
    code = (
        "import sys, cutaway.hub.resolve; "
        "print(sorted({'torch', 'numpy', 'huggingface_hub', 'urllib.request', 'ssl', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ}, check=True)
    assert done.stdout.strip() == "[]"
