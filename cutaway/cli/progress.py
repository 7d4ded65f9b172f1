"""Showing on standard error how far something has come: a bar on a terminal, a line now and then elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cutaway.cli.output import tell
from cutaway.hub.progress import Progress

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

PERCENT_STEP = 10


@contextmanager
def shown_progress(what: str) -> Iterator[Progress]:
    """A progress for ``hub.resolve.ensure``; nothing appears before it is called, so nothing without a download."""
    with _bar(what, _byte_columns) if sys.stderr.isatty() else _lines(what, _in_bytes) as progress:
        yield progress


@contextmanager
def counted_progress(what: str, unit: str) -> Iterator[Progress]:
    """The same for things that are counted, such as requests."""
    with _bar(what, _count_columns) if sys.stderr.isatty() else counted_lines(what, unit) as progress:
        yield progress


@contextmanager
def counted_lines(what: str, unit: str) -> Iterator[Progress]:
    """The same without a bar, whose thread would take time from what is measured beside it."""
    with _lines(what, lambda num: f"{num:,} {unit}") as progress:
        yield progress


def _in_bytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.1f} MB"


@contextmanager
def _lines(what: str, measured: Callable[[int], str]) -> Iterator[Progress]:
    next_percent = 0

    def progress(num_done: int, num_total: int) -> None:
        nonlocal next_percent
        percent = 100 * num_done // num_total if num_total else 100
        if percent >= next_percent:
            tell(f"{what}: {percent}% of {measured(num_total)}")
            next_percent = percent - percent % PERCENT_STEP + PERCENT_STEP

    yield progress


@contextmanager
def _bar(what: str, columns: "Callable[[], list[ProgressColumn]]") -> Iterator[Progress]:
    # rich takes 0.1 s to import, which commands that show nothing need not wait for.
    from rich.console import Console
    from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    shown = (TextColumn("{task.description}"), BarColumn(), *columns(), TimeRemainingColumn())
    bar = RichProgress(*shown, console=Console(stderr=True))
    tasks: list[TaskID] = []

    def progress(num_done: int, num_total: int) -> None:
        if not tasks:
            tasks.append(bar.add_task(what, total=num_total))
            bar.start()
        bar.update(tasks[0], completed=num_done, total=num_total)

    try:
        yield progress
    finally:
        if tasks:
            bar.stop()


def _byte_columns() -> "list[ProgressColumn]":
    from rich.progress import DownloadColumn, TransferSpeedColumn

    return [DownloadColumn(), TransferSpeedColumn()]


def _count_columns() -> "list[ProgressColumn]":
    from rich.progress import MofNCompleteColumn

    return [MofNCompleteColumn()]
