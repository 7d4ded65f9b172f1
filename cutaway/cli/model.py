"""Which model a command works on: the option that names it, and the way to its files."""

from collections.abc import Callable

import click

from cutaway.cli.progress import shown_progress
from cutaway.config import DEFAULT_MODEL, load_settings
from cutaway.hub.files import ModelFiles
from cutaway.hub.resolve import ensure
from cutaway.hub.store import ModelStore

Command = Callable[..., None]


def model_option(command: Command) -> Command:
    """Add ``--model``."""
    return click.option(
        "-m",
        "--model",
        default=DEFAULT_MODEL,
        show_default=True,
        help="Built-in name, path to a .gguf file or a folder, or hf:org/repo[:file].",
    )(command)


def find_model(reference: str) -> ModelFiles:
    """Find the model of that name, or fetch it with a progress bar.

    Raises:
        UnknownModel, DownloadError: as ``hub.resolve.ensure``.
    """
    settings = load_settings()
    with shown_progress(f"pulling {reference}") as progress:
        return ensure(reference, ModelStore(settings.cache_dir, settings.index_url), progress)
