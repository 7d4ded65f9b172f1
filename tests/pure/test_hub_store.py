import fcntl
import os

import pytest
from standins import model_in_wheels

from cutaway.errors import DownloadError, UnknownModel, UsageError
from cutaway.hub.catalog import catalog_of
from cutaway.hub.store import ModelStore

ENTRY, _ = model_in_wheels("tiny-model", [b"0123456789"])


@pytest.fixture
def store(tmp_path):
    return ModelStore(tmp_path / "cache", "http://127.0.0.1:9/simple", catalog_of([ENTRY]))


def put(store, name, content):
    store.models_dir.mkdir(parents=True, exist_ok=True)
    store.path(name).write_bytes(content)


def never(folder):
    raise AssertionError("nobody else holds the lock")


def test_a_store_without_a_folder_is_empty(store):
    assert store.list() == ()
    assert store.find("tiny-model") is None
    assert not store.cache_dir.exists()


def test_models_are_listed_with_place_and_size(store):
    put(store, "tiny-model", b"0123456789")
    put(store, "a-file.of_mine", b"xx")
    mine, tiny = store.list()
    assert (mine.name, mine.path, mine.num_bytes, mine.complete) == (
        "a-file.of_mine",
        store.models_dir / "a-file.of_mine.gguf",
        2,
        True,
    )
    assert (tiny.name, tiny.num_bytes, tiny.complete) == ("tiny-model", 10, True)


@pytest.mark.parametrize("content", [b"", b"012345678", b"0123456789x"])
def test_a_model_of_another_size_than_published_is_incomplete(store, content):
    put(store, "tiny-model", content)
    assert [model.complete for model in store.list()] == [False]


def test_downloads_under_way_are_not_listed(store):
    with store.filling("tiny-model", never) as folder:
        (folder / "tiny-model.gguf").write_bytes(b"0123456789")
        assert store.list() == ()
        store.install("tiny-model", folder / "tiny-model.gguf")
        assert [model.name for model in store.list()] == ["tiny-model"]
    assert not folder.exists()


def test_an_interrupted_filling_leaves_nothing(store):
    def interrupted():
        with store.filling("tiny-model", never) as folder:
            (folder / "part-0.whl").write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert store.list() == ()
    assert [path.name for path in store.models_dir.iterdir() if path.name.startswith(".partial")] == []


def test_the_next_filling_clears_what_killed_ones_left_of_whatever_model(store):
    for name in ("tiny-model", "another-model"):
        leftover = store.models_dir / f".partial-{name}"
        leftover.mkdir(parents=True)
        (leftover / "part-0.whl").write_bytes(b"half")
    with store.filling("tiny-model", never) as folder:
        assert list(folder.iterdir()) == []
        assert not (store.models_dir / ".partial-another-model").exists()


def test_a_filling_leaves_alone_what_another_process_fills(store):
    with store.filling("another-model", never) as theirs:
        (theirs / "part-0.whl").write_bytes(b"half")
        with store.filling("tiny-model", never):
            assert (theirs / "part-0.whl").read_bytes() == b"half"


def test_a_model_is_removed_together_with_what_a_killed_download_left(store):
    put(store, "tiny-model", b"0123456789")
    (store.models_dir / ".partial-tiny-model").mkdir()
    removed = store.remove("tiny-model")
    assert (removed.name, removed.num_bytes) == ("tiny-model", 10)
    assert store.list() == ()
    assert not (store.models_dir / ".partial-tiny-model").exists()


def test_removing_what_only_a_killed_download_left_clears_it_and_says_that_there_is_no_model(store):
    leftover = store.models_dir / ".partial-tiny-model"
    leftover.mkdir(parents=True)
    with pytest.raises(UnknownModel, match="not among the downloaded"):
        store.remove("tiny-model")
    assert not leftover.exists()


def test_removing_a_model_that_is_not_there_names_those_that_are(store):
    put(store, "another", b"x")
    with pytest.raises(UnknownModel) as caught:
        store.remove("tiny-model")
    assert caught.value.hint == "downloaded are: another"
    assert [path.name for path in store.models_dir.iterdir()] == ["another.gguf"]


def test_removing_offers_only_downloaded_names(store):
    put(store, "tiny-modal", b"x")
    with pytest.raises(UnknownModel) as caught:
        store.remove("tiny-model")
    assert caught.value.hint == "did you mean tiny-modal?"


@pytest.mark.parametrize(
    "reference", ["../tiny-model", "/etc/passwd", "a/b", "..", ".", "", ".lock-tiny-model", "a\0b"]
)
def test_paths_are_never_removed(store, tmp_path, reference):
    outside = tmp_path / "tiny-model.gguf"
    outside.write_bytes(b"mine")
    put(store, "tiny-model", b"0123456789")
    with pytest.raises(UnknownModel):
        store.remove(reference)
    assert outside.exists()
    assert store.path("tiny-model").exists()


def test_a_model_that_is_being_pulled_is_not_removed(store):
    with store.filling("tiny-model", never), pytest.raises(UsageError, match="being pulled"):
        store.remove("tiny-model")


def test_waiting_for_another_download_shows_its_folder_and_ends_with_it(store):
    store.models_dir.mkdir(parents=True)
    lock = os.open(store.models_dir / ".lock-tiny-model", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    seen = []

    def waiting(folder):
        seen.append(folder)
        if len(seen) == 2:
            os.close(lock)

    with store.filling("tiny-model", waiting) as folder:
        assert seen == [folder, folder]


def test_links_to_another_cache_are_listed_until_their_files_are_gone(store, tmp_path):
    target = tmp_path / "elsewhere" / "m.gguf"
    target.parent.mkdir()
    target.write_bytes(b"12345")
    store.link("hf:org/repo:m.gguf", target)
    store.link("hf:org/repo:m.gguf", target)
    (model,) = store.list()
    assert (model.name, model.path, model.num_bytes, model.complete) == ("hf:org/repo:m.gguf", target, 5, True)
    target.unlink()
    assert store.list() == ()
    assert store.find("hf:org/repo:m.gguf") is None


def test_removing_a_linked_model_leaves_its_files_to_their_own_cache(store, tmp_path):
    target = tmp_path / "m.gguf"
    target.write_bytes(b"12345")
    store.link("hf:org/repo", target)
    assert store.remove("hf:org/repo").path == target
    assert store.list() == ()
    assert target.exists()


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", ".hidden", "-x", "a b", "a\0", "x" * 129])
def test_names_that_could_lead_out_of_the_folder_are_refused(store, name):
    with pytest.raises(UnknownModel):
        store.path(name)


def test_a_cache_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "cache").write_text("a file is in the way")
    store = ModelStore(tmp_path / "cache", "http://127.0.0.1:9/simple", catalog_of([ENTRY]))
    with pytest.raises(DownloadError, match=str(tmp_path / "cache")) as caught, store.filling("tiny-model", never):
        pass
    assert "CUTAWAY_CACHE" in caught.value.hint
