"""Which model a command works on: the option that names it, and the way to its files."""

from collections.abc import Callable

import click

from cutaway.cli.output import tell
from cutaway.cli.progress import shown_progress
from cutaway.config import DEFAULT_MODEL, load_settings
from cutaway.hub.catalog import Purpose
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


def announce_download(reference: str, store: ModelStore) -> None:
    """Say under which licence a built-in model comes, before it is fetched."""
    entry = store.catalog.get(reference)
    if entry is not None and store.find(reference) is None:
        tell(f"{entry.title}; licence: {entry.licence} ({entry.licence_url})")
        if entry.purpose is Purpose.TESTS:
            tell(f"a test model: {entry.note}")


def find_model(reference: str) -> ModelFiles:
    """Find the model of that name, or fetch it with a progress bar.

    Raises:
        UnknownModel, DownloadError: as ``hub.resolve.ensure``.
    """
    settings = load_settings()
    store = ModelStore(settings.cache_dir, settings.index_url)
    announce_download(reference, store)
    with shown_progress(f"pulling {reference}") as progress:
        return ensure(reference, store, progress)
