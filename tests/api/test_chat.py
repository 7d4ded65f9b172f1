"""``cutaway chat`` as a user types into it: through a pipe, and in a real terminal."""

import json
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pexpect
import pytest
from click.testing import CliRunner
from conftest import CutawayCommand
from fake_engine import FACTS
from standins import HubSite

from cutaway.cli import chat as chat_module
from cutaway.errors import OutOfMemory

SMOLLM = "smollm2-135m-instruct"


@pytest.fixture(scope="module")
def smollm(real_model: Callable[[str], Path]) -> str:
    return str(real_model(SMOLLM))


def test_a_conversation_remembers_and_can_be_saved(
    cutaway_command: CutawayCommand, smollm: str, tmp_path: Path
) -> None:
    lines = [
        "/system You are terse.",
        "My name is Minsu. Say hello.",
        "What is my name?",
        f"/save {tmp_path / 'talk.json'}",
        f"/save {tmp_path / 'talk.md'}",
        f"/save {tmp_path / 'talk.md'}",
        "/reset",
        f"/save {tmp_path / 'empty.json'}",
    ]
    done = cutaway_command("chat", "-m", smollm, "--max-tokens", "24", stdin="\n".join(lines) + "\n", check=True)
    saved = json.loads((tmp_path / "talk.json").read_text())
    assert [message["role"] for message in saved["messages"]] == ["system", "user", "assistant", "user", "assistant"]
    assert saved["messages"][0]["content"] == "You are terse."
    assert saved["messages"][1]["content"] == "My name is Minsu. Say hello."
    answers = [message["content"] for message in saved["messages"] if message["role"] == "assistant"]
    assert "Minsu" in answers[1]
    assert done.stdout == "".join(f"{answer}\n" for answer in answers)
    assert "**user**\n\nWhat is my name?" in (tmp_path / "talk.md").read_text()
    assert "exists already" in done.stderr
    assert [m["role"] for m in json.loads((tmp_path / "empty.json").read_text())["messages"]] == ["system"]


def test_an_error_keeps_the_chat(cutaway_command: CutawayCommand, smollm: str, tmp_path: Path) -> None:
    lines = [
        "word " * 100,
        "/nonsense",
        "/model no-such-model",
        "/save",
        f"/save {tmp_path}/missing/talk.json",
        "/help",
        "Say hi.",
    ]
    done = cutaway_command("chat", "-m", smollm, "--context", "64", stdin="\n".join(lines), check=True)
    for words in (
        "the context holds 64",
        "/nonsense is none of /system",
        "no-such-model",
        "there is no name",
        "cannot be written",
        "Ctrl-D ends the chat",
    ):
        assert words in done.stderr, words
    assert "Traceback" not in done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize(
    "wrong", [["--max-tokens", "0"], ["--top-p", "0"], ["--stop", ""], ["--threads", "0"]], ids=str
)
def test_wrong_values_are_refused_before_the_chat_begins(cutaway_command: CutawayCommand, wrong: list[str]) -> None:
    done = cutaway_command("chat", "-m", "no-such-model", *wrong)
    assert done.rc == 2
    assert "is outside its limits" in done.stderr
    assert "no-such-model" not in done.stderr


def test_another_model_goes_on_with_the_conversation(
    cutaway_command: CutawayCommand, smollm: str, real_model: Callable[[str], Path]
) -> None:
    qwen = str(real_model("qwen2.5-coder-0.5b-instruct"))
    lines = ["/model", f"/model {qwen}", "What is 2 + 2? Answer with a number."]
    done = cutaway_command("chat", "-m", smollm, "--max-tokens", "8", stdin="\n".join(lines), check=True)
    assert f"model: {smollm}" in done.stderr
    assert f"model: {qwen}" in done.stderr
    assert "4" in done.stdout


def test_instructions_can_be_changed_shown_and_removed(
    cutaway_command: CutawayCommand, smollm: str, tmp_path: Path
) -> None:
    lines = [
        "/system",
        f"/save {tmp_path / 'before.json'}",
        "/system Be kind.",
        f"/save {tmp_path / 'changed.json'}",
        "/system -",
        f"/save {tmp_path / 'removed.json'}",
    ]
    done = cutaway_command("chat", "-m", smollm, "--system", "Be terse.", stdin="\n".join(lines), check=True)
    told = [line for line in done.stderr.splitlines() if line.startswith("system: ")]
    assert told == ["system: Be terse.", "system: Be kind.", "system: (none)"]
    saved = [json.loads((tmp_path / f"{name}.json").read_text())["messages"] for name in ("before", "changed")]
    assert saved == [[{"role": "system", "content": "Be terse."}], [{"role": "system", "content": "Be kind."}]]
    assert json.loads((tmp_path / "removed.json").read_text())["messages"] == []


def test_exit_ends_the_chat_at_once(cutaway_command: CutawayCommand, smollm: str) -> None:
    done = cutaway_command("chat", "-m", smollm, stdin=" /exit \n/model\nSay hi.\n", check=True)
    assert "model: " not in done.stderr
    assert done.stdout == ""


def test_two_slashes_begin_a_message_with_one(cutaway_command: CutawayCommand, smollm: str, tmp_path: Path) -> None:
    lines = ["//reset is a word", f"/save {tmp_path / 'talk.json'}"]
    cutaway_command("chat", "-m", smollm, "--max-tokens", "2", stdin="\n".join(lines), check=True)
    question, answer = json.loads((tmp_path / "talk.json").read_text())["messages"]
    assert question == {"role": "user", "content": "/reset is a word"}
    assert answer["role"] == "assistant"


def test_an_unknown_command_is_answered_with_all_that_there_are(cutaway_command: CutawayCommand, smollm: str) -> None:
    done = cutaway_command("chat", "-m", smollm, stdin="/tmp is a folder\n", check=True)
    assert "error: command: /tmp is none of /system, /reset, /model, /save, /help, /exit\n" in done.stderr
    assert "hint: a message that begins with a slash is typed with two\n" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    "env",
    [
        {"PYTHONIOENCODING": "utf-8"},
        {"PYTHONIOENCODING": None, "LC_ALL": "C.UTF-8"},
        {"PYTHONIOENCODING": None, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
    ids=["strict", "utf-8", "ascii"],
)
def test_a_piped_line_that_is_not_utf8_is_refused_and_the_next_one_is_read(
    cutaway_command: CutawayCommand, smollm: str, env: dict[str, str | None]
) -> None:
    lines = "café\n".encode() + b"/system caf\xe9\n" + "/system thé\n".encode()
    done = cutaway_command("chat", "-m", smollm, "--max-tokens", "1", env=env, stdin=lines, check=True)
    assert done.stderr.count("error: ") == 1
    assert "error: input: byte 11 of the line is not UTF-8\n" in done.stderr
    assert "system: thé\n" in done.stderr
    assert "surrogate" not in done.stderr
    assert done.stdout.strip()


def test_standard_input_that_cannot_be_read_is_refused(
    cutaway_command: CutawayCommand, smollm: str, tmp_path: Path
) -> None:
    with (tmp_path / "written").open("wb") as write_only:
        done = subprocess.run(
            [*cutaway_command.program, "chat", "-m", smollm],
            stdin=write_only,
            capture_output=True,
            text=True,
            env=cutaway_command.environment(None),
        )
    assert done.returncode == 2
    assert "error: input: standard input cannot be read: Bad file descriptor\n" in done.stderr
    assert "Traceback" not in done.stderr


class FakeSession:
    """Instead of a model that is loaded."""

    def __init__(self, name: str, closed: list[str]) -> None:
        self.engine = SimpleNamespace(close=lambda: closed.append(name), model=FACTS)


def test_a_model_that_does_not_fit_leaves_the_old_one_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []

    def open_session(name: str, _: object) -> FakeSession:
        if name == "huge":
            raise OutOfMemory("the model", 2**40, 2**30)
        return FakeSession(name, closed)

    monkeypatch.setattr(chat_module, "open_session", open_session)
    done = CliRunner().invoke(chat_module.chat, ["-m", "small"], input="/model huge\n/model\n/model other\n/exit\n")
    assert done.exit_code == 0
    told = [line for line in done.stderr.splitlines() if line.startswith(("error: ", "model: "))]
    assert told == [told[0], "model: small", "model: other"]
    assert "the model needs 1,099,512 MB of memory" in told[0]
    assert closed == ["small", "other"]


@contextmanager
def chatting(
    command: CutawayCommand, *arguments: str, env: dict[str, str | None] | None = None
) -> "Iterator[pexpect.spawn[str]]":
    """A chat in a real terminal, ready for the first line."""
    environment = {**command.environment(env), "TERM": "dumb"}
    child = pexpect.spawn(
        command.program[0], ["chat", *arguments], env=environment, encoding="utf-8", codec_errors="replace", timeout=120
    )
    try:
        child.expect_exact("> ")
        yield child
    finally:
        child.close(force=True)


def end(terminal: "pexpect.spawn[str]") -> None:
    """Ctrl-D, which ends the chat well."""
    terminal.sendeof()
    terminal.expect(pexpect.EOF)
    terminal.wait()
    assert terminal.exitstatus == 0


@pytest.fixture
def terminal(cutaway_command: CutawayCommand, smollm: str) -> Iterator["pexpect.spawn[str]"]:
    """A chat in a real terminal, ready for the first line."""
    with chatting(cutaway_command, "-m", smollm) as child:
        yield child


def test_ctrl_c_stops_an_answer_and_keeps_the_chat(terminal: "pexpect.spawn[str]") -> None:
    terminal.sendline("Write a very long story about a lighthouse.")
    terminal.expect_exact("lighthouse.\r\n")
    terminal.expect(re.compile("[a-z]+ [a-z]+ [a-z]+ [a-z]+"))
    terminal.sendintr()
    terminal.expect_exact("(stopped)")
    terminal.expect_exact("> ")
    terminal.sendline("Say hi.")
    terminal.expect_exact("Say hi.\r\n")
    terminal.expect(re.compile("[A-Za-z]{2,}.*> ", re.DOTALL))
    end(terminal)


def test_ctrl_c_at_the_prompt_gives_up_the_line(terminal: "pexpect.spawn[str]") -> None:
    terminal.send("half a li")
    terminal.expect_exact("half a li")  # the line editor has taken it in and waits
    terminal.sendintr()
    terminal.expect_exact("> ")
    terminal.sendline("/model")
    terminal.expect_exact("model: ")
    end(terminal)


def test_an_answer_that_was_stopped_before_it_began_leaves_no_turn(
    cutaway_command: CutawayCommand, smollm: str, tmp_path: Path
) -> None:
    # So long a text to read first that the interrupt comes before the first token.
    with chatting(cutaway_command, "-m", smollm, "--system", "word " * 7000) as terminal:
        terminal.sendline("Say hi.")
        terminal.expect_exact("Say hi.\r\n")
        terminal.sendintr()
        terminal.expect_exact("(stopped)\r\n")
        terminal.expect_exact("> ")
        terminal.sendline(f"/save {tmp_path / 'talk.json'}")
        terminal.expect_exact("saved 1 messages")
        end(terminal)
    assert [message["role"] for message in json.loads((tmp_path / "talk.json").read_text())["messages"]] == ["system"]


def test_ctrl_c_while_another_model_is_fetched_keeps_the_chat_and_its_model(
    cutaway_command: CutawayCommand, smollm: str, hub_site: HubSite
) -> None:
    answer = hub_site.publish("org/slow", {"slow.gguf": os.urandom(300_000)})["slow.gguf"]
    answer.stop_after, answer.go_on = 1000, threading.Event()
    env: dict[str, str | None] = {"HF_ENDPOINT": hub_site.url, "HF_HUB_DISABLE_XET": "1"}
    with chatting(cutaway_command, "-m", smollm, "--max-tokens", "4", env=env) as terminal:
        terminal.sendline("/model hf:org/slow")
        assert answer.reached.wait(60)
        terminal.sendintr()
        terminal.expect_exact("(stopped)\r\n")
        terminal.expect_exact("> ")
        terminal.sendline("/model")
        terminal.expect_exact(f"model: {smollm}\r\n")
        terminal.sendline("Say hi.")
        terminal.expect_exact("Say hi.\r\n")
        terminal.expect(re.compile("[A-Za-z]{2,}.*> ", re.DOTALL))
        end(terminal)


@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
def test_a_typed_line_that_is_not_utf8_is_refused_and_the_chat_goes_on(
    cutaway_command: CutawayCommand, smollm: str, locale: str
) -> None:
    env: dict[str, str | None] = {"PYTHONIOENCODING": None, "LC_ALL": locale}
    if locale == "C":
        env |= {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    with chatting(cutaway_command, "-m", smollm, env=env) as terminal:
        os.write(terminal.child_fd, b"caf\xff\r")
        terminal.expect_exact("error: input: byte 3 of the line is not UTF-8\r\n")
        terminal.expect_exact("> ")
        terminal.sendline("/system thé")
        terminal.expect_exact("system: thé\r\n")
        end(terminal)


@pytest.mark.parametrize("name", ["~nobody-of-that-name/x", "a\\0b", "/no/such/folder/x.json"])
def test_a_file_that_cannot_be_saved_is_an_error_and_the_chat_goes_on(
    cutaway_command: CutawayCommand, smollm: str, name: str
) -> None:
    lines = f"/save {name}\n/system be brief\n".replace("\\0", "\0")
    done = cutaway_command("chat", "-m", smollm, stdin=lines)
    assert done.rc == 0
    assert "cannot be written" in done.stderr
    assert "system: be brief" in done.stderr
    assert "Traceback" not in done.stderr
