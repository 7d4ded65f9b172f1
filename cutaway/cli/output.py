"""What the commands print, and where: answers on standard output, everything else on standard error."""

import sys

import click

from cutaway.printable import printable


def tell(message: str) -> None:
    """Print a line for the person at the terminal."""
    click.echo(printable(message), err=True)


def show(line: str) -> None:
    """Print a line of a result that people read."""
    click.echo(printable(line))


def stream(text: str) -> None:
    """Print a piece of an answer: as it is for a program, safe to look at for a terminal."""
    click.echo(printable(text) if sys.stdout.isatty() else text, nl=False)
