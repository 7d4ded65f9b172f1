"""Showing on standard error how far a download has come: a bar on a terminal, a line now and then elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from cutaway.cli.output import tell
from cutaway.hub.progress import Progress

PERCENT_STEP = 10


@contextmanager
def shown_progress(what: str) -> Iterator[Progress]:
    """A progress for ``hub.resolve.ensure``; nothing appears before it is called, so nothing without a download."""
    with _bar(what) if sys.stderr.isatty() else _lines(what) as progress:
        yield progress


@contextmanager
def _lines(what: str) -> Iterator[Progress]:
    next_percent = 0

    def progress(num_done: int, num_total: int) -> None:
        nonlocal next_percent
        percent = 100 * num_done // num_total if num_total else 100
        if percent >= next_percent:
            tell(f"{what}: {percent}% of {num_total / 1e6:,.1f} MB")
            next_percent = percent - percent % PERCENT_STEP + PERCENT_STEP

    yield progress


@contextmanager
def _bar(what: str) -> Iterator[Progress]:
    # rich takes 0.1 s to import, which commands that show nothing need not wait for.
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as RichProgress

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    bar = RichProgress(*columns, TransferSpeedColumn(), TimeRemainingColumn(), console=Console(stderr=True))
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
