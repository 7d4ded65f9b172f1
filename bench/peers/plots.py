"""Plots as SVG files: curves of tokens a second, and bars. The file of the same figures is always the same."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

# Colours that people who see no red or no green tell apart (Okabe and Ito, 2008); own engines come first.
COLOURS = ("#d55e00", "#0072b2", "#009e73", "#6b6b6b", "#cc79a7", "#e69f00")
MARKERS = "osD^vP"
MIN_LABEL_GAP = 0.055  # of the height
Curve = Sequence[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class Words:
    """What stands on a plot."""

    title: str
    x: str = ""
    y: str = ""


def draw_curves(path: Path, words: Words, curves: Mapping[str, Curve]) -> None:
    """Draw a curve for each engine over logarithmic axes, each with its name at its end."""
    with _style():
        figure = Figure(figsize=(7.6, 4.4), facecolor="white", layout="constrained")
        axes = figure.add_subplot()
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        for (name, curve), colour, marker in zip(curves.items(), COLOURS, MARKERS, strict=False):
            xs, ys = [x for x, _ in curve], [y for _, y in curve]
            axes.plot(xs, ys, color=colour, marker=marker, linewidth=2.2, markersize=5, label=name)
        ticks = sorted({x for curve in curves.values() for x, _ in curve})
        axes.xaxis.set_major_locator(FixedLocator(ticks))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_title(words.title, loc="left", fontweight="bold")
        axes.set_xlabel(words.x)
        axes.set_ylabel(words.y)
        _label_ends(axes, curves)
        _save(figure, path)


def draw_bars(path: Path, words: Words, values: Mapping[str, float], number_format: str) -> None:
    """Draw a bar for each engine, each with its number."""
    with _style():
        figure = Figure(figsize=(7.6, 0.9 + 0.5 * len(values)), facecolor="white", layout="constrained")
        axes = figure.add_subplot()
        names = list(values)
        bars = axes.barh(names, list(values.values()), color=COLOURS[: len(names)], height=0.6)
        axes.bar_label(bars, [number_format.format(value) for value in values.values()], padding=4)
        axes.invert_yaxis()
        axes.set_title(words.title, loc="left", fontweight="bold")
        axes.xaxis.set_visible(False)
        axes.grid(visible=False)
        axes.spines["bottom"].set_visible(False)
        axes.margins(x=0.15)
        _save(figure, path)


def _style() -> AbstractContextManager[None]:
    return mpl.rc_context(
        {
            "svg.hashsalt": "cutaway",
            "svg.fonttype": "none",
            "font.family": "sans-serif",
            "font.size": 11,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.color": "#dddddd",
            "axes.axisbelow": True,
        }
    )


def _label_ends(axes: Axes, curves: Mapping[str, Curve]) -> None:
    """Write names right of the last points, moved apart where they would overlap."""
    to_share = axes.transScale.transform
    low, high = (to_share((1, y))[1] for y in axes.get_ylim())
    shares = {name: (to_share((1, curve[-1][1]))[1] - low) / (high - low) for name, curve in curves.items()}
    colours = dict(zip(curves, COLOURS, strict=False))
    below = -1.0
    for name, share in sorted(shares.items(), key=lambda item: item[1]):
        below = max(share, below + MIN_LABEL_GAP)
        axes.text(1.01, below, name, transform=axes.transAxes, color=colours[name], va="center", fontweight="bold")


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None})
