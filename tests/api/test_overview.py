"""What the command says about itself, without a model."""

import pytest
from conftest import CutawayCommand

from cutaway import __version__
from cutaway.cli.chat import HELP
from cutaway.cli.main import COMMANDS


def test_the_version_is_one_line(cutaway_command: CutawayCommand) -> None:
    assert cutaway_command("--version", check=True).stdout == f"cutaway {__version__}\n"


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_the_overview_names_every_command_and_what_it_is_for(cutaway_command: CutawayCommand, option: str) -> None:
    lines = [" ".join(line.split()) for line in cutaway_command(option, check=True).stdout.splitlines()]
    for name, (_, text) in COMMANDS.items():
        assert f"{name} {text}" in lines


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help(cutaway_command: CutawayCommand, name: str) -> None:
    done = cutaway_command(name, "--help", check=True)
    assert done.stdout.startswith(f"Usage: cutaway {name} ")
    assert done.stderr == ""


def test_the_help_of_chat_lists_what_can_be_typed_at_its_prompt(cutaway_command: CutawayCommand) -> None:
    shown = [line.strip() for line in cutaway_command("chat", "--help", check=True).stdout.splitlines()]
    for line in HELP.splitlines():
        assert line in shown
