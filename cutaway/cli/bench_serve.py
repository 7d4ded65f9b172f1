"""``cutaway bench serve``: a server under load, by the definitions of ``vllm bench serve``."""

import asyncio
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cutaway.benchmark.load import Load
from cutaway.benchmark.metrics import GOODPUT_METRICS, Distribution, ServeFigures, measure
from cutaway.benchmark.plot import check_plot, draw_plot
from cutaway.benchmark.prompts import Prompt, random_prompts, read_dataset
from cutaway.cli.model import find_model
from cutaway.cli.options import number_option
from cutaway.cli.output import show, tell
from cutaway.cli.progress import counted_progress
from cutaway.config import load_settings
from cutaway.errors import CutawayError, InvalidValue
from cutaway.limits import LIMITS, check_number
from cutaway.text.load_tokenizer import load_tokenizer
from cutaway.weights.checkpoint import open_checkpoint

if TYPE_CHECKING:
    from cutaway.benchmark.serve import ServeRun

# Spelled out here, too, since the client takes a fifth of a second to import.
ENDPOINTS = ("/v1/chat/completions", "/v1/completions")
DEFAULT_NUM_PROMPTS = 100
MAX_SHOWN_ERRORS = 10
_TITLES = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "itl": "inter-token latency",
    "e2el": "end-to-end latency",
}


class GoodputLimit(click.ParamType[tuple[str, float]]):
    """A metric and the milliseconds that it may take: ``ttft:500``."""

    name = "metric:ms"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, float]:
        """The name and the number.

        Raises:
            InvalidValue: it is none.
        """
        metric, _, number = str(value).partition(":")
        try:
            limit_ms = float(number)
        except ValueError:
            limit_ms = None
        if metric not in GOODPUT_METRICS or limit_ms is None:
            metrics = ", ".join(GOODPUT_METRICS)
            raise InvalidValue("goodput", f"{value!r} is not one of {metrics} with milliseconds", hint="as in ttft:500")
        check_number("goodput", limit_ms)
        return metric, limit_ms


class Percentiles(click.ParamType[tuple[float, ...]]):
    """Numbers from 0 to 100, with commas between them: ``50,90,99.9``."""

    name = "numbers"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        """The numbers, ascending.

        Raises:
            InvalidValue: there is something else, or a number outside its limits.
        """
        try:
            numbers = sorted({float(part) for part in str(value).split(",")})
        except ValueError:
            raise InvalidValue(
                "metric_percentiles", f"{value!r} is no list of numbers", hint="as in 50,90,99.9"
            ) from None
        for number in numbers:
            check_number("metric_percentiles", number)
        return tuple(numbers)


@click.command()
@click.option("--url", required=True, help="Address of the server, as in http://127.0.0.1:8000.")
@click.option("-m", "--model", required=True, help="Name that the server knows the model by.")
@click.option("--endpoint", type=click.Choice(ENDPOINTS), default=ENDPOINTS[0], show_default=True, help="What to ask.")
@click.option(
    "--api-key", help="Shown to the server; CUTAWAY_BENCH_API_KEY, which other users cannot see, if left out."
)
@click.option(
    "--request-rate",
    type=float,
    help=f"Requests to send in a second, on average ({LIMITS['request_rate']}, or inf; {LIMITS['request_rate'].hint}).",
)
@number_option("burstiness", float, 1.0, "With --request-rate, shape of the gamma distribution of the gaps")
@click.option(
    "--max-concurrency",
    "--concurrency",
    type=int,
    help=f"Requests under way at the same time ({LIMITS['max_concurrency']}); any number, if left out.",
)
@click.option(
    "--num-prompts",
    type=int,
    help=f"Requests to send ({LIMITS['num_prompts']}); {DEFAULT_NUM_PROMPTS}, or all of --dataset, if left out.",
)
@number_option("input_len", int, 128, "Random words of a prompt, each about a token")
@number_option("output_len", int, 128, "Most tokens of an answer")
@click.option(
    "--dataset",
    type=click.Path(path_type=Path),
    help='File with a line {"prompt": "…", "max_tokens": 128} for each request, the second for --output-len.',
)
@click.option("--ignore-eos", is_flag=True, help="Ask for answers of full length; not every server knows how.")
@click.option("--tokenizer", help="Model whose tokens are counted where the server does not say how many there were.")
@number_option("seed", int, 0, "Of random words and gaps")
@number_option("warmup", int, 1, "Requests before the load")
@number_option("timeout", float, 600.0, "Seconds for a whole answer")
@click.option(
    "--goodput",
    type=GoodputLimit(),
    multiple=True,
    help="Count requests that take no longer, as in ttft:500 or tpot:50 or e2el:5000; may be given several times.",
)
@click.option(
    "--metric-percentiles", type=Percentiles(), default="90,99", show_default=True, help="Percentiles to report."
)
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the figures into this SVG file; needs matplotlib.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with the names of vllm bench serve.")
def serve(
    url: str,
    model: str,
    endpoint: str,
    api_key: str | None,
    request_rate: float | None,
    burstiness: float,
    max_concurrency: int | None,
    num_prompts: int | None,
    input_len: int,
    output_len: int,
    dataset: Path | None,
    ignore_eos: bool,
    tokenizer: str | None,
    seed: int,
    warmup: int,
    timeout: float,
    goodput: tuple[tuple[str, float], ...],
    metric_percentiles: tuple[float, ...],
    plot: Path | None,
    as_json: bool,
) -> None:
    """Send requests to a server with an API like OpenAI's, and measure how it answers.

    The figures are those of vllm bench serve. Without --request-rate, all requests are sent at once. Answers are
    streamed and take the most likely tokens; the same seed gives the same load.
    """
    prompts = _prompts(dataset, num_prompts, input_len, output_len, seed)
    others = random_prompts(len(prompts) + warmup, input_len, output_len, seed)[len(prompts) :]
    rate = None if request_rate == math.inf else request_rate
    load = Load(len(prompts), rate, burstiness, max_concurrency, seed)
    limits = _limits(goodput)
    if plot is not None:
        check_plot(plot)
    count = None if tokenizer is None else _counter(tokenizer)
    from cutaway.benchmark.client import Target
    from cutaway.benchmark.serve import run_load, to_timing

    target = Target(url, model, endpoint, api_key or load_settings().bench_api_key, ignore_eos, timeout)
    with counted_progress("asking", "requests") as progress:
        run = asyncio.run(run_load(target, prompts, load, others, progress))
    _tell_problems(run, counts_itself=count is not None)
    timings = [to_timing(answer, count) for answer in run.answers]
    figures = measure(timings, len(run.failures), run.duration_s, metric_percentiles, limits)
    if as_json:
        described = describe(figures, run.failures) | {"url": target.address, "model": model, **asdict(load)}
        click.echo(json.dumps(described | {"goodput": limits}, ensure_ascii=False))
    else:
        for line in _lines(figures):
            show(line)
    if plot is not None:
        draw_plot(plot, f"{model}, {len(prompts):,} requests", timings, limits)


def describe(figures: ServeFigures, failures: Sequence[str]) -> dict[str, object]:
    """The figures, by the names of ``vllm bench serve``."""
    described: dict[str, object] = {
        "duration": figures.duration_s,
        "completed": figures.num_completed,
        "failed": figures.num_failed,
        "total_input_tokens": figures.num_input_tokens,
        "total_output_tokens": figures.num_output_tokens,
        "request_throughput": figures.request_throughput,
        "request_goodput": figures.request_goodput,
        "output_throughput": figures.output_throughput,
        "total_token_throughput": figures.total_token_throughput,
        "max_output_tokens_per_s": figures.max_output_tokens_per_s,
        "max_concurrent_requests": figures.max_concurrent_requests,
    }
    for metric, values in _distributions(figures).items():
        named = {} if values is None else values.named()
        described |= {f"{name}_{metric}_ms": value for name, value in named.items()}
    return described | {"errors": failures[:MAX_SHOWN_ERRORS]}


def _prompts(dataset: Path | None, num_prompts: int | None, input_len: int, output_len: int, seed: int) -> list[Prompt]:
    if num_prompts is not None:
        check_number("num_prompts", num_prompts)
    if dataset is None:
        return random_prompts(num_prompts or DEFAULT_NUM_PROMPTS, input_len, output_len, seed)
    prompts = read_dataset(dataset, output_len)
    if num_prompts is not None and num_prompts > len(prompts):
        raise InvalidValue("num_prompts", f"{num_prompts:,} are more than the {len(prompts):,} of {dataset}")
    return prompts[:num_prompts]


def _limits(goodput: Sequence[tuple[str, float]]) -> dict[str, float]:
    limits = dict(goodput)
    if len(limits) < len(goodput):
        raise InvalidValue("goodput", "a metric was given two limits", hint="give each once")
    return limits


def _counter(tokenizer: str) -> Callable[[str], int]:
    """Counts the tokens of a text as a model reads it."""
    loaded = load_tokenizer(open_checkpoint(find_model(tokenizer).path))
    return lambda text: len(loaded.encode(loaded.escape(text)).token_ids)


def _tell_problems(run: "ServeRun", *, counts_itself: bool) -> None:
    """Say on standard error what went wrong, and what had to be guessed.

    Raises:
        CutawayError: every request failed.
    """
    failures = run.failures
    if not run.answers:
        raise CutawayError(
            f"all {len(failures):,} requests failed; the first: {failures[0]}",
            hint="is the server there, and does it know the model?",
        )
    if failures:
        tell(f"{len(failures):,} of {len(run.replies):,} requests failed:")
        for failure in failures[:MAX_SHOWN_ERRORS]:
            tell(f"  {failure}")
    num_silent = sum(answer.num_output_tokens is None for answer in run.answers)
    if num_silent and not counts_itself:
        tell(
            f"note: the server did not say how many tokens {num_silent:,} answers have, so that each chunk with text "
            "counts as one (--tokenizer MODEL counts them)"
        )


def _distributions(figures: ServeFigures) -> Mapping[str, Distribution | None]:
    return {"ttft": figures.ttft_ms, "tpot": figures.tpot_ms, "itl": figures.itl_ms, "e2el": figures.e2el_ms}


def _lines(figures: ServeFigures) -> list[str]:
    goodput, most = figures.request_goodput, figures.max_output_tokens_per_s
    rows = [
        ("requests", f"{figures.num_completed:,} completed, {figures.num_failed:,} failed"),
        ("duration", f"{figures.duration_s:,.2f} s"),
        ("tokens", f"{figures.num_input_tokens:,} in, {figures.num_output_tokens:,} out"),
        ("requests/s", f"{figures.request_throughput:,.2f}"),
        *([] if goodput is None else [("goodput", f"{goodput:,.2f} requests/s within the limits")]),
        ("output", f"{figures.output_throughput:,.1f} tokens/s, at most {most:,} chunks in one second"),
        ("total", f"{figures.total_token_throughput:,.1f} tokens/s, input and output"),
        ("concurrent", f"{figures.max_concurrent_requests:,} requests at most"),
    ]
    lines = [f"{name:<12} {value}" for name, value in rows]
    found = {metric: values.named() for metric, values in _distributions(figures).items() if values is not None}
    names = list(next(iter(found.values())))
    lines += ["", f"{'ms':<28}" + "".join(f"{name:>12}" for name in names)]
    for metric, named in found.items():
        title = f"{_TITLES[metric]} ({metric.upper()})"
        lines.append(f"{title:<28}" + "".join(f"{value:>12,.2f}" for value in named.values()))
    return lines
