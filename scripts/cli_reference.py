"""Write docs/cli.md from the commands themselves; with --check, only say whether it is up to date."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from cutaway.cli.main import cli

TARGET = Path(__file__).parent.parent / "docs" / "cli.md"
HEAD = """\
# Commands

Generated from the code by `make docs`; `make check` fails when it is out of date.
"""


def reference() -> str:
    """The whole reference, in Markdown."""
    help_names = cli.context_settings["help_option_names"]
    root = click.Context(cli, info_name="cutaway", terminal_width=100, help_option_names=help_names)
    return "\n".join([HEAD, *sections(cli, root)])


def sections(command: click.Command, context: click.Context) -> Iterator[str]:
    """A command and, if it is a group, all of its commands."""
    yield section(command, context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            part = command.get_command(context, name)
            assert part is not None
            yield from sections(part, click.Context(part, parent=context, info_name=name, terminal_width=100))


def section(command: click.Command, context: click.Context) -> str:
    """One command: its usage text as the terminal shows it."""
    return f"## `{context.command_path}`\n\n```text\n{command.get_help(context).rstrip()}\n```\n"


def main() -> int:
    """Write or check."""
    text = reference()
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(text, encoding="utf-8")
        return 0
    if TARGET.exists() and TARGET.read_text(encoding="utf-8") == text:
        return 0
    print(f"{TARGET.name} is out of date; run `make docs`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
