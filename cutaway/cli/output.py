"""What the commands print, and where: answers on standard output, everything else on standard error."""

import sys

import click

from cutaway.cli.streams import OutputLost, abandon_output
from cutaway.printable import printable


def tell(message: str) -> None:
    """Print a line for the person at the terminal. If there is nobody to read it, the command goes on all the same."""
    try:
        click.echo(printable(message), err=True)
    except (OutputLost, OSError):
        abandon_output()


def show(line: str) -> None:
    """Print a line of a result that people read."""
    click.echo(printable(line))


def stream(text: str) -> None:
    """Print a piece of an answer: as it is for a program, safe to look at for a terminal."""
    click.echo(printable(text) if sys.stdout.isatty() else text, nl=False)
