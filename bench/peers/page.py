"""The page of a file of results: tables, plots, and how they came about, in two languages.

``python -m bench.peers.page [FOLDER]`` writes it again from ``FOLDER/benchmarks.jsonl``.
"""

import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.peers.engines import OWN
from bench.peers.plots import Words, draw_bars, draw_curves
from bench.peers.results import Line, Results, read_results

LANGUAGES: Mapping[str, str] = {"en": "benchmarks.md", "ko": "benchmarks.ko.md"}
DEFAULT_FOLDER = "docs"
# Part, key of its sizes in a line, name of the measurement, and what else tells its lines.
PARTS: Sequence[tuple[str, str, str, Mapping[str, object]]] = (
    ("decode", "requests", "decode", {"prompt": 128}),
    ("prefill", "prompt", "prefill", {"requests": 1}),
    ("context", "prompt", "decode", {"requests": 1}),
)
AXES: Mapping[str, Words] = {
    "decode": Words("Answers, all requests together", "requests, context 128 to 192", "tokens/s"),
    "prefill": Words("Prompts", "tokens of the prompt", "tokens/s"),
    "context": Words("One answer after a long context", "tokens of the context", "tokens/s"),
    "start": Words("Start of the process to first token, seconds"),
    "memory": Words("Peak of resident memory, MB"),
}


def write_page(results: Results, folder: Path) -> list[Path]:
    """Write plots and pages; returns the paths of the pages."""
    plots = draw_plots(results, folder)
    paths = []
    for language, name in LANGUAGES.items():
        words = tomllib.loads((Path(__file__).parent / "words" / f"{language}.toml").read_text(encoding="utf-8"))
        paths.append(folder / name)
        paths[-1].write_text(render(results, words, plots), encoding="utf-8")
    return paths


def draw_plots(results: Results, folder: Path) -> list[str]:
    """Draw what there are figures for; returns the parts that have a plot."""
    model, drawn = main_model(results), []
    for part, key, name, facts in PARTS:
        curves = {engine: curve(results, engine, model, key, name, facts) for engine in results.engines}
        curves = {engine: points for engine, points in curves.items() if points}
        if curves:
            draw_curves(plot_path(folder, part), AXES[part], curves)
            drawn.append(part)
    for part, name, number_format in (
        ("start", "start to first token", "{:.1f}"),
        ("memory", "peak memory", "{:,.0f}"),
    ):
        medians = {engine: results.median(name=name, engine=engine, model=model) for engine in results.engines}
        values = {engine: value for engine, value in medians.items() if value is not None}
        if values:
            draw_bars(plot_path(folder, part), AXES[part], values, number_format)
            drawn.append(part)
    return drawn


def render(results: Results, words: Mapping[str, str], plots: Sequence[str]) -> str:
    """The page as Markdown.

    Args:
        results: what it shows.
        words: of a language.
        plots: parts that have one.
    """
    link = f"[{words['other']}]({words['other_page']})"
    sections = [f"# {words['title']}", link, words["intro"].strip(), *_describe(results, words)]
    sections += [f"## {_headline(results, words)}"] if results.lines else []
    for part, key, name, facts in PARTS:
        table = _rates(results, words, part, key, name, facts)
        if table:
            sections += [f"### {words[part]}", *_plot(part, words, plots), table]
    if table := _starts(results, words):
        sections += [f"### {words['start']}", *_plot("start", words, plots), *_plot("memory", words, plots), table]
    if table := _others(results, words):
        sections += [f"## {words['others']}", table]
    sections += [f"## {words['notes_title']}", words["notes"].strip(), words["again"]]
    return "\n\n".join(sections) + "\n"


def main_model(results: Results) -> str:
    """The model that is measured most."""
    names = [str(line["model"]) for line in results.lines]
    return max(results.models, key=names.count, default="")


def curve(
    results: Results, engine: str, model: str, key: str, name: str, facts: Mapping[str, object]
) -> list[tuple[int, float]]:
    """Size and median of each measurement of an engine, smallest first."""
    points = {
        int(str(line[key])): float(str(line["median"]))
        for line in results.lines
        if _has(line, {"name": name, "engine": engine, "model": model, **facts})
    }
    return sorted(points.items())


def plot_path(folder: Path, part: str) -> Path:
    """Where a plot lies."""
    return folder / "images" / f"benchmark-{part}.svg"


def _has(line: Line, facts: Line) -> bool:
    return all(line.get(key) == value for key, value in facts.items())


def _describe(results: Results, words: Mapping[str, str]) -> list[str]:
    run = results.run
    commit = results.lines[0]["commit"] if results.lines else "-"
    facts = [
        [words["date"], str(run["date"])],
        [words["machine"], words["machine_value"].format(**run)],
        [words["command"], f"`{run['command']}`"],
        [words["commit"], f"`{commit}`"],
        [words["rounds"], _rounds(results)],
    ]
    engines = []
    for engine in results.engines:
        line = next(line for line in results.lines if _has(line, {"engine": engine, "model": main_model(results)}))
        engines.append([engine, str(line["version"]), str(line["weights"])])
    sections = [_table([words["run"], ""], facts)]
    sections.append(_table([words["engine"], words["version"], words["weights"]], engines))
    if results.missing:
        missing = [f"{line['engine']} ({line['model']}): {_one_line(str(line['reason']))}" for line in results.missing]
        sections.append("\n".join([f"{words['missing']}:", "", *(f"- {text}" for text in missing)]))
    return sections


def _rounds(results: Results) -> str:
    """How often each thing was measured, where it was measured."""
    counts = {str(line["name"]): str(line["runs"]) for line in results.lines}
    return ", ".join(f"{name}: {count}" for name, count in counts.items())


def _headline(results: Results, words: Mapping[str, str]) -> str:
    return words["model"].format(model=main_model(results), threads=results.lines[0]["threads"])


def _plot(part: str, words: Mapping[str, str], plots: Sequence[str]) -> list[str]:
    return [f"![{words[f'alt_{part}']}](images/benchmark-{part}.svg)"] if part in plots else []


def _rates(
    results: Results, words: Mapping[str, str], part: str, key: str, name: str, facts: Mapping[str, object]
) -> str:
    """A row for each size, a column for each engine, and how the own ones compare with the best peer."""
    model = main_model(results)
    curves = {engine: dict(curve(results, engine, model, key, name, facts)) for engine in results.engines}
    sizes = sorted({size for points in curves.values() for size in points})
    own = [engine for engine in results.engines if engine in OWN]
    peers = [engine for engine in results.engines if engine not in OWN]
    rows = []
    for size in sizes:
        best = max((curves[peer][size] for peer in peers if size in curves[peer]), default=None)
        rates = [_number(curves[engine].get(size)) for engine in results.engines]
        rows.append([f"{size:,}", *rates, *(_ratio(curves[engine].get(size), best) for engine in own)])
    title = words["length" if part == "context" else key]
    return _table([title, *results.engines, *(words["ratio"].format(engine=engine) for engine in own)], rows)


def _starts(results: Results, words: Mapping[str, str]) -> str:
    model, rows = main_model(results), []
    for engine in results.engines:
        seconds = results.median(name="start to first token", engine=engine, model=model)
        megabytes = results.median(name="peak memory", engine=engine, model=model)
        if seconds is not None:
            rows.append([engine, f"{seconds:.2f}", _number(megabytes)])
    return _table([words["engine"], words["seconds"], words["megabytes"]], rows)


def _others(results: Results, words: Mapping[str, str]) -> str:
    rows = []
    for model in results.models:
        if model == main_model(results):
            continue
        for engine in results.engines:
            answer = results.median(name="decode", engine=engine, model=model)
            prompt = results.median(name="prefill", engine=engine, model=model)
            if answer is not None or prompt is not None:
                rows.append([model, engine, _number(answer), _number(prompt)])
    return _table([words["model_column"], words["engine"], words["answer"], words["prompt"]], rows)


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; empty without rows."""
    if not rows:
        return ""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _ratio(value: float | None, best: float | None) -> str:
    return "-" if value is None or not best else f"{value / best:.2f} ×"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def main() -> None:
    """Write the page of the folder named on the command line."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else DEFAULT_FOLDER)
    for path in write_page(read_results(folder / "benchmarks.jsonl"), folder):
        print(path)


if __name__ == "__main__":
    main()
