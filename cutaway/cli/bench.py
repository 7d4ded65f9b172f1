"""``cutaway bench``: figures of an engine in this process, and of any server."""

import click

from cutaway.cli.bench_offline import offline
from cutaway.cli.bench_serve import serve


@click.group()
def bench() -> None:
    """Measure how fast an engine computes here, or how a server does under load."""


bench.add_command(offline)
bench.add_command(serve)
