"""Draws the 13 stages of a receipt in a terminal."""

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table as RichTable
from rich.text import Text

from cutaway.glass.ledger import time_ledger
from cutaway.glass.receipt import Receipt
from cutaway.glass.stages import Stage, Table, tell_stages
from cutaway.glass.words import Words
from cutaway.printable import printable

INDENT = 5
MIN_TABLE_WIDTH = 70
NARROW = 11  # columns


def explain(receipt: Receipt, words: Words, console: Console) -> None:
    """Print a receipt: 13 stages, then the time ledger."""
    model = f"{receipt.model.name} ({receipt.model.architecture}, {receipt.model.quantization}, {receipt.model.dtype})"
    console.print()
    console.print(Text(printable(words.label("heading", model=model, request_id=receipt.request_id)), style="bold"))
    for stage in tell_stages(receipt, words):
        console.print(draw_stage(stage, console.width))
    console.print(draw_ledger(receipt, words))


def draw_stage(stage: Stage, width: int) -> RenderableType:
    """One stage, for a terminal of ``width`` columns: heading, sentence, lines, tables."""
    parts: list[RenderableType] = [
        Text(""),
        Rule(Text(f"{stage.number:2d}  {stage.title}", style="bold cyan"), align="left", style="dim", characters="─"),
        Padding(Text(stage.sentence, style="italic"), (0, 0, 0, INDENT)),
    ]
    if stage.lines:
        grid = RichTable.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        for label, text in stage.lines:
            grid.add_row(Text(label), Text(printable(text)))
        parts.append(Padding(grid, (0, 0, 0, INDENT)))
    parts += [Padding(_draw_table(table, width), (0, 0, 0, INDENT)) for table in stage.tables]
    return Group(*parts)


def _draw_table(table: Table, width: int) -> RichTable:
    drawn = RichTable(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for heading, *cells in zip(table.headings, *table.rows, strict=True):
        # Numbers stay whole, unless there is no room for them at all.
        is_narrow = max(map(cell_len, (heading, *cells))) <= NARROW and width >= MIN_TABLE_WIDTH
        drawn.add_column(Text(heading), overflow="fold", no_wrap=is_narrow)
    for row in table.rows:
        drawn.add_row(*(Text(printable(cell)) for cell in row))
    return drawn


def draw_ledger(receipt: Receipt, words: Words) -> RenderableType:
    """Where the time went, with bars."""
    ledger = time_ledger(receipt)
    rows = [(words.times[name], duration) for name, duration in ledger.rows]
    rows += [(words.label("unaccounted"), ledger.unaccounted_ns), (words.label("total"), ledger.total_ns)]
    grid = RichTable.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column(justify="right")
    grid.add_column()
    for name, duration in rows:
        share = duration / ledger.total_ns if ledger.total_ns else 0.0
        bar = "█" * round(share * 30) if name != words.label("total") else ""
        grid.add_row(Text(name), Text(f"{duration / 1e6:,.1f} ms"), Text(bar, style="cyan"))
    heading = Rule(Text(words.label("ledger"), style="bold cyan"), align="left", style="dim")
    return Group(Text(""), heading, Padding(grid, (0, 0, 0, INDENT)))
