"""Every command with standard streams that are closed, full or left by their reader."""

import os
import subprocess

import pytest
from conftest import CutawayCommand

QUICK = ["models", "models --json --all", "--help", "ask --help", "--version"]


def run(command: CutawayCommand, line: str) -> "subprocess.CompletedProcess[str]":
    """Run the command through a shell, which redirects as a user would."""
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command.program[0]} {line}"],
        capture_output=True,
        text=True,
        env=command.environment(None),
        cwd=command.folder,
        timeout=120,
    )


@pytest.mark.parametrize("arguments", QUICK)
def test_a_full_disk_is_one_message(cutaway_command: CutawayCommand, arguments: str) -> None:
    done = run(cutaway_command, f"{arguments} >/dev/full")
    assert done.returncode == 1
    assert done.stderr == "error: standard output cannot be written: No space left on device\n"


def test_more_than_a_buffer_on_a_full_disk_is_one_message(cutaway_command: CutawayCommand) -> None:
    cutaway_command.models_dir.mkdir(parents=True)
    for number in range(100):
        (cutaway_command.models_dir / f"noise-{number}.gguf").write_bytes(b"noise")
    done = run(cutaway_command, "models --json >/dev/full")
    assert done.returncode == 1
    assert done.stderr == "error: standard output cannot be written: No space left on device\n"


@pytest.mark.parametrize("arguments", [*QUICK, "ask hi", "chat", "tokenize hi", "doctor"])
def test_a_closed_standard_output_is_one_message_at_the_start(cutaway_command: CutawayCommand, arguments: str) -> None:
    done = run(cutaway_command, f"{arguments} >&-")
    assert done.returncode == 1
    assert done.stderr == "error: standard output is closed\nhint: to have no output, send it to /dev/null\n"
    assert not cutaway_command.cache_dir.exists()


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full", "2> >(true)"])
def test_messages_that_nobody_can_read_change_nothing_else(cutaway_command: CutawayCommand, redirection: str) -> None:
    done = run(cutaway_command, f"models {redirection}")
    assert done.returncode == 0
    assert "NAME" in done.stdout
    assert run(cutaway_command, f"pull no-such-model {redirection}").returncode == 2
    assert run(cutaway_command, f"ask --no-such-option {redirection}").returncode == 2


@pytest.mark.parametrize("redirection", [">/dev/full 2>/dev/full", "<&- >&- 2>&-"])
def test_without_any_stream_the_status_says_it(cutaway_command: CutawayCommand, redirection: str) -> None:
    assert run(cutaway_command, f"models {redirection}").returncode == 1


@pytest.mark.parametrize("arguments", QUICK)
def test_a_reader_that_left_ends_the_command_quietly(cutaway_command: CutawayCommand, arguments: str) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [*cutaway_command.program, *arguments.split()],
        stdout=write_end,
        stderr=subprocess.PIPE,
        env=cutaway_command.environment(None),
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("command", ["ask", "ask -"])
def test_a_closed_standard_input_is_an_empty_prompt(cutaway_command: CutawayCommand, command: str) -> None:
    done = run(cutaway_command, f"{command} <&-")
    assert done.returncode == 2
    assert done.stderr.startswith("error: prompt: it is empty\nhint: ")


def test_a_prompt_cannot_come_from_what_is_open_for_writing_only(cutaway_command: CutawayCommand) -> None:
    done = run(cutaway_command, "ask 0>written")
    assert done.returncode == 2
    assert done.stderr == "error: prompt: standard input cannot be read: Bad file descriptor\n"


@pytest.mark.parametrize("redirection", ["<&-", "0>written", "< <(printf '\\xff\\n')"])
def test_nothing_is_removed_without_an_answer_that_can_be_read(
    cutaway_command: CutawayCommand, redirection: str
) -> None:
    cutaway_command.models_dir.mkdir(parents=True)
    path = cutaway_command.models_dir / "mine.gguf"
    path.write_bytes(b"x")
    done = run(cutaway_command, f"rm mine {redirection}")
    assert done.returncode == (1 if "printf" in redirection else 2)
    assert "Traceback" not in done.stderr
    assert path.exists()


@pytest.mark.parametrize(
    ("folder", "encoding", "shown"),
    [(os.fsdecode(b"caf\xe9"), "utf-8", "caf\\udce9"), ("토마토", "latin-1", "\\ud1a0\\ub9c8\\ud1a0")],
    ids=["no encoding", "another encoding"],
)
def test_a_file_name_that_cannot_be_printed_is_spelled_out(
    cutaway_command: CutawayCommand, folder: str, encoding: str, shown: str
) -> None:
    path = cutaway_command.folder / folder / "models" / "mine.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x")
    env: dict[str, str | None] = {"CUTAWAY_CACHE": str(path.parents[1]), "PYTHONIOENCODING": encoding}
    done = cutaway_command("pull", "mine", env=env, check=True)
    assert f"{shown}/models/mine.gguf" in done.stdout
