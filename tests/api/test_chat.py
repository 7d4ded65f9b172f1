"""``cutaway chat`` as a user types into it: through a pipe, and in a real terminal."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pytest
from conftest import CutawayCommand

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


@pytest.fixture
def terminal(cutaway_command: CutawayCommand, smollm: str) -> Iterator["pexpect.spawn[str]"]:
    """A chat in a real terminal, ready for the first line."""
    child = pexpect.spawn(
        cutaway_command.program[0],
        ["chat", "-m", smollm],
        env={**cutaway_command.environment(None), "TERM": "dumb"},
        encoding="utf-8",
        timeout=120,
    )
    child.expect_exact("> ")
    yield child
    child.close(force=True)


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
    terminal.sendeof()
    terminal.expect(pexpect.EOF)
    terminal.wait()
    assert terminal.exitstatus == 0


def test_ctrl_c_at_the_prompt_gives_up_the_line(terminal: "pexpect.spawn[str]") -> None:
    terminal.send("half a li")
    terminal.expect_exact("half a li")  # the line editor has taken it in and waits
    terminal.sendintr()
    terminal.expect_exact("> ")
    terminal.sendline("/model")
    terminal.expect_exact("model: ")
    terminal.sendeof()
    terminal.expect(pexpect.EOF)
    terminal.wait()
    assert terminal.exitstatus == 0
