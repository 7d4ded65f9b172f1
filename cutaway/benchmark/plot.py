"""A page with the figures of a run, as an SVG image. Needs matplotlib, which only this imports."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cutaway.benchmark.metrics import RequestTiming, chunks_per_second, concurrency
from cutaway.errors import CutawayError, InvalidValue

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE_INCHES = (12.0, 6.5)


def check_plot(path: Path) -> None:
    """Raises ``CutawayError`` unless a plot can be drawn into ``path``: better before the run than after it."""
    if path.suffix.lower() != ".svg":
        raise InvalidValue("plot", f"{path} does not end in .svg, the format that is written")
    if not path.absolute().parent.is_dir() or path.is_dir():
        raise InvalidValue("plot", f"{path} cannot be written: there is no such folder, or it is one itself")
    try:
        import matplotlib  # noqa: F401 - whether it is there
    except ImportError:
        raise CutawayError(
            "a plot needs matplotlib, which is not installed", hint="pip install 'cutaway[bench]'"
        ) from None


def draw_plot(path: Path, title: str, timings: Sequence[RequestTiming], goodput: Mapping[str, float]) -> None:
    """Write the page: how each latency is distributed, and what happened second by second.

    Args:
        path: of the image.
        title: above everything.
        timings: of at least one request.
        goodput: limits in milliseconds by metric, which are drawn, too.

    Raises:
        CutawayError: the image cannot be written.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    values_s = {
        "ttft": [timing.ttft_s for timing in timings],
        "tpot": [timing.tpot_s for timing in timings if timing.tpot_s is not None],
        "itl": [gap_s for timing in timings for gap_s in timing.itl_s],
        "e2el": [timing.e2el_s for timing in timings],
    }
    figure = Figure(figsize=SIZE_INCHES, layout="constrained")
    figure.suptitle(title)
    axes = figure.subplots(2, 3).flat
    for name, values in values_s.items():
        _draw_distribution(next(axes), name, values, goodput.get(name))
    _draw_chunks(next(axes), timings)
    _draw_concurrency(next(axes), timings)
    try:
        with rc_context({"svg.fonttype": "none", "svg.hashsalt": title}):  # letters stay letters, ids stay the same
            figure.savefig(path, format="svg", metadata={"Date": None})
    except OSError as error:
        raise CutawayError(f"{path} cannot be written: {error.strerror or error}") from None


def _draw_distribution(axes: "Axes", name: str, values_s: Sequence[float], limit_ms: float | None) -> None:
    axes.set(title=name.upper(), xlabel="ms", ylabel="share of values up to it", ylim=(0, 1))
    if values_s:
        axes.ecdf([1e3 * value for value in values_s])
    if limit_ms is not None:
        axes.axvline(limit_ms, color="tab:red", linestyle="--", label=f"limit {limit_ms:g} ms")
        axes.legend()


def _draw_chunks(axes: "Axes", timings: Sequence[RequestTiming]) -> None:
    counts = chunks_per_second(timings)
    axes.set(title="Output", xlabel="second", ylabel="chunks a second")
    axes.bar(range(len(counts)), counts, width=1.0, align="edge")


def _draw_concurrency(axes: "Axes", timings: Sequence[RequestTiming]) -> None:
    begin_s = min(timing.sent_s for timing in timings)
    moments = concurrency(timings)
    axes.set(title="Requests under way", xlabel="second", ylabel="requests")
    axes.step([moment_s - begin_s for moment_s, _ in moments], [count for _, count in moments], where="post")
