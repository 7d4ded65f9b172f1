"""``hf:`` references end to end, against a hub on this machine."""

import json
import os
import subprocess
import sys
import threading

import pytest
from standins import COMMIT, Answer

GGUF = b"GGUF" + os.urandom(300_000)
FOLDER = {
    "config.json": b'{"model_type": "llama"}',
    "generation_config.json": b"{}",
    "tokenizer.json": b'{"model": {}}',
    "tokenizer_config.json": b"{}",
    "chat_template.jinja": b"{{ messages }}",
    "model.safetensors": os.urandom(50_000),
    "pytorch_model.bin": b"pickle",
    "modeling_custom.py": b"raise SystemExit",
    "training_args.pt": b"pickle",
    "README.md": b"# Model",
    "onnx/model.safetensors": b"elsewhere",
}


@pytest.fixture
def hf(cutaway_command, hub_site):
    """Runs the command with the hub on this machine."""

    def run(*arguments, **env):
        return cutaway_command(*arguments, env={"HF_ENDPOINT": hub_site.url, "HF_HUB_DISABLE_XET": "1", **env})

    return run


def rows(hf):
    return json.loads(hf("models", "--json").stdout)


def assert_failed(done, rc, *words):
    assert done.rc == rc, done
    assert done.stderr.count("error: ") == 1
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr
    assert done.stdout == ""


def test_the_only_gguf_file_of_a_repository_is_pulled_and_listed(hf, hub_site, cutaway_command):
    hub_site.publish("org/tiny-GGUF", {"README.md": b"# Tiny", "tiny.Q4_0.gguf": GGUF})
    done = hf("pull", "hf:org/tiny-GGUF")
    assert done.rc == 0, done
    path = cutaway_command.folder / f"huggingface/hub/models--org--tiny-GGUF/snapshots/{COMMIT}/tiny.Q4_0.gguf"
    assert done.stdout == f"hf:org/tiny-GGUF is ready: {path}\n"
    assert path.read_bytes() == GGUF
    assert "hf:org/tiny-GGUF: 100% of 0.3 MB" in done.stderr
    assert hub_site.asked(f"/org/tiny-GGUF/resolve/{COMMIT}/README.md") == 0
    stored = [row for row in rows(hf) if row["name"] == "hf:org/tiny-GGUF"]
    assert [(row["path"], row["num_bytes"]) for row in stored] == [(str(path), len(GGUF))]


def test_a_named_file_is_pulled_and_nothing_else(hf, hub_site):
    hub_site.publish("org/repo", {"q4/m-Q4.gguf": GGUF, "m-Q8.gguf": b"other"})
    done = hf("pull", "hf:org/repo:q4/m-Q4.gguf")
    assert done.rc == 0, done
    assert done.stdout.endswith("/q4/m-Q4.gguf\n")
    assert hub_site.asked(f"/org/repo/resolve/{COMMIT}/m-Q8.gguf") == 0


def test_several_gguf_files_are_listed_for_the_user_to_choose(hf, hub_site):
    hub_site.publish("org/repo", {"m-Q4.gguf": GGUF, "m-Q8.gguf": b"other"})
    assert_failed(hf("pull", "hf:org/repo"), 2, "hf:org/repo:m-Q4.gguf", "hf:org/repo:m-Q8.gguf")


def test_all_parts_of_a_split_model_are_pulled(hf, hub_site):
    names = [f"m-{number:05d}-of-00002.gguf" for number in (1, 2)]
    hub_site.publish("org/repo", {names[0]: GGUF, names[1]: b"second"})
    done = hf("pull", "hf:org/repo")
    assert done.rc == 0, done
    assert done.stdout.endswith(f"/{names[0]}\n")
    assert hub_site.asked(f"/org/repo/resolve/{COMMIT}/{names[1]}") == 1


def test_a_safetensors_model_comes_without_anything_that_can_carry_code(hf, hub_site, cutaway_command):
    hub_site.publish("org/model", FOLDER)
    done = hf("pull", "hf:org/model")
    assert done.rc == 0, done
    folder = cutaway_command.folder / f"huggingface/hub/models--org--model/snapshots/{COMMIT}"
    assert done.stdout == f"hf:org/model is ready: {folder}\n"
    assert {path.name for path in folder.iterdir()} == {
        *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"),
        *("chat_template.jinja", "model.safetensors"),
    }
    asked = {path for _, path, _ in hub_site.requests}
    assert not any(path.endswith((".bin", ".py", ".pt")) or "onnx" in path for path in asked)


def test_what_is_here_needs_no_network(hf, hub_site):
    hub_site.publish("org/repo", {"m.gguf": GGUF})
    hf("pull", "hf:org/repo")
    num_requests = len(hub_site.requests)
    done = hf("pull", "hf:org/repo")
    assert done.rc == 0
    assert "already here" in done.stdout
    assert len(hub_site.requests) == num_requests


def test_rm_forgets_a_model_of_the_hub_and_leaves_its_files(hf, hub_site, cutaway_command):
    hub_site.publish("org/repo", {"m.gguf": GGUF})
    hf("pull", "hf:org/repo")
    done = hf("rm", "hf:org/repo", "--yes")
    assert done.rc == 0
    assert "Forgot hf:org/repo" in done.stdout
    assert [row["name"] for row in rows(hf) if row["name"].startswith("hf:")] == []
    assert list(cutaway_command.folder.glob("huggingface/hub/*/snapshots/*/m.gguf"))
    assert_failed(hf("rm", "hf:org/repo", "--yes"), 2, "not among the downloaded models")


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (404, "RepoNotFound", ["has no model org/repo", "hf auth login"]),
        (401, "RepoNotFound", ["has no model org/repo", "hf auth login"]),
        (403, "GatedRepo", ["accepted its terms", "hf auth login"]),
    ],
)
def test_a_repository_that_is_missing_or_closed_is_named(hf, hub_site, status, code, words):
    hub_site.refuse("org/repo", status, code)
    assert_failed(hf("pull", "hf:org/repo"), 2, "org/repo", *words)
    assert [row for row in rows(hf) if row["name"].startswith("hf:")] == []


@pytest.mark.parametrize(("status", "hint"), [(401, "hf auth login"), (418, "HF_ENDPOINT"), (500, "HF_ENDPOINT")])
def test_another_refusal_names_host_and_status(hf, hub_site, status, hint):
    hub_site.refuse("org/repo", status, "")
    assert_failed(hf("pull", "hf:org/repo"), 1, hub_site.url.removeprefix("http://"), str(status), hint)


def test_a_hub_that_cannot_be_reached_is_named(hf):
    done = hf("pull", "hf:org/repo", HF_ENDPOINT="http://127.0.0.1:9")
    assert_failed(done, 1, "127.0.0.1:9", "HTTPS_PROXY")


def test_the_offline_mode_of_the_hub_is_named(hf):
    assert_failed(hf("pull", "hf:org/repo", HF_HUB_OFFLINE="1"), 1, "HF_HUB_OFFLINE")


@pytest.mark.parametrize("body", [b"<html>", b"", b"[]", b"{}", b'{"id": 7, "siblings": [{}]}', b"[" * 100_000])
def test_an_answer_that_describes_no_model_is_an_error(hf, hub_site, body):
    hub_site.answers["/api/models/org/repo"] = Answer(body, headers={"Content-Type": "application/json"})
    assert_failed(hf("pull", "hf:org/repo"), 1, hub_site.url.removeprefix("http://"))


def test_a_file_that_vanished_is_an_error(hf, hub_site):
    hub_site.publish("org/repo", {"m.gguf": GGUF})
    del hub_site.answers[f"/org/repo/resolve/{COMMIT}/m.gguf"]
    done = hf("pull", "hf:org/repo")
    assert_failed(done, 1, hub_site.url.removeprefix("http://"), "m.gguf", "404")
    assert [row for row in rows(hf) if row["name"].startswith("hf:")] == []


def test_a_file_with_other_bytes_than_published_is_refused_and_thrown_away(hf, hub_site, cutaway_command):
    answers = hub_site.publish("org/repo", {"m.gguf": GGUF})
    answers["m.gguf"].body = bytes(len(GGUF))
    assert_failed(hf("pull", "hf:org/repo"), 1, "m.gguf of org/repo is not what was published", "SHA-256")
    assert [row for row in rows(hf) if row["name"].startswith("hf:")] == []
    answers["m.gguf"].body = GGUF
    done = hf("pull", "hf:org/repo")
    assert done.rc == 0, done


def left_by_a_killed_pull(command, hub_site, name):
    """Put what the hub sends into the cache, as a pull does that is killed before it looks at the bytes."""
    code = f"import huggingface_hub as h; h.hf_hub_download('org/repo', {name!r}, revision={COMMIT!r})"
    env = command.environment({"HF_ENDPOINT": hub_site.url, "HF_HUB_DISABLE_XET": "1"})
    subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True)


@pytest.mark.parametrize("is_sound", [True, False], ids=["sound", "wrong"])
def test_what_a_killed_pull_left_unchecked_is_checked_by_the_next(hf, hub_site, cutaway_command, is_sound):
    answers = hub_site.publish("org/repo", {"m.gguf": GGUF})
    answers["m.gguf"].body = GGUF if is_sound else bytes(len(GGUF))
    left_by_a_killed_pull(cutaway_command, hub_site, "m.gguf")
    assert [row for row in rows(hf) if row["name"].startswith("hf:")] == []
    done = hf("pull", "hf:org/repo")
    if not is_sound:
        assert_failed(done, 1, "m.gguf of org/repo is not what was published", "SHA-256")
        assert [row for row in rows(hf) if row["name"].startswith("hf:")] == []
        answers["m.gguf"].body = GGUF
        done = hf("pull", "hf:org/repo")
    assert done.rc == 0, done
    assert hub_site.asked(f"/org/repo/resolve/{COMMIT}/m.gguf") == (1 if is_sound else 2)
    (row,) = (row for row in rows(hf) if row["name"] == "hf:org/repo")
    with open(row["path"], "rb") as file:
        assert file.read() == GGUF


def test_a_repository_whose_weights_could_not_be_opened_is_not_fetched(hf, hub_site):
    hub_site.publish("org/repo", {"config.json": b"{}", "weights.safetensors": b"x", "tokenizer.json": b"{}"})
    assert_failed(hf("pull", "hf:org/repo"), 2, "holds neither a .gguf file nor a config.json with model.safetensors")
    assert not any("/resolve/" in path for _, path, _ in hub_site.requests)


def test_an_interrupted_pull_of_a_folder_is_not_listed(cutaway_command, hf, hub_site):
    answers = hub_site.publish("org/model", FOLDER)
    answers["model.safetensors"].stop_after = 1000
    answers["model.safetensors"].go_on = threading.Event()
    env = {"HF_ENDPOINT": hub_site.url, "HF_HUB_DISABLE_XET": "1"}
    with cutaway_command.start("pull", "hf:org/model", env=env) as process:
        assert answers["model.safetensors"].reached.wait(60)
        process.kill()
        process.communicate()
    assert [row for row in rows(hf) if row["name"].startswith("hf:")] == []
    answers["model.safetensors"].stop_after = None
    done = hf("pull", "hf:org/model")
    assert done.rc == 0, done
    assert len([row for row in rows(hf) if row["name"].startswith("hf:")]) == 1


@pytest.mark.parametrize("reference", ["hf:repo", "hf:org/../repo", "hf:org/repo:../../x.gguf", "hf:org/repo:x.bin"])
def test_references_that_lead_elsewhere_never_reach_the_network(hf, hub_site, reference):
    assert_failed(hf("pull", reference), 2)
    assert hub_site.requests == []
