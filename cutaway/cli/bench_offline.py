"""``cutaway bench offline``: an engine measured in this process, beside what the machine can do at most."""

import json
import os
import time
from dataclasses import asdict

import click

from cutaway.benchmark.metrics import Distribution
from cutaway.benchmark.offline import run_rounds, stop
from cutaway.benchmark.rounds import OfflineFigures, Spread, summarize
from cutaway.benchmark.work import Ceiling, ModelWork
from cutaway.benchmark.workload import Workload
from cutaway.cli.model import find_model
from cutaway.cli.options import ModelOptions, model_options, number_option
from cutaway.cli.output import show
from cutaway.cli.progress import counted_lines
from cutaway.cli.session import open_worker
from cutaway.engine.imports import importing_torch
from cutaway.engine.interrupts import interrupts_held
from cutaway.engine.options import EngineOptions
from cutaway.glass.receipt import ModelFacts
from cutaway.machine import read_cpu
from cutaway.text.load_tokenizer import load_tokenizer
from cutaway.weights.checkpoint import Checkpoint, open_checkpoint


@click.command()
@model_options
@number_option("input_len", int, 512, "Tokens of a prompt")
@number_option("output_len", int, 128, "Tokens of an answer, at least 2")
@number_option("batch", int, 1, "Requests at the same time")
@number_option("rounds", int, 3, "Rounds to take the median of")
@number_option("warmup", int, 1, "Rounds before those")
@number_option("seed", int, 0, "Of the prompts, which are random tokens")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def offline(
    options: ModelOptions,
    input_len: int,
    output_len: int,
    batch: int,
    rounds: int,
    warmup: int,
    seed: int,
    as_json: bool,
) -> None:
    """Measure an engine in this process: reading prompts, and generating, each by itself.

    Every round has new prompts. They are sent together for one token each, which is prefill, and then once more for
    whole answers; decode is what happens while all answers are under way. Shares are of what torch reaches on this
    machine just before: reading as many bytes as a decode step does, and multiplying two matrices.
    """
    workload = Workload(input_len, output_len, batch, rounds, warmup, seed)
    engine_options = options.engine(batch)
    files = find_model(options.model)
    checkpoint = open_checkpoint(files.path)
    tokenizer = load_tokenizer(checkpoint)
    work, ceiling = _bounds(checkpoint, engine_options, workload)
    begin = time.perf_counter()
    worker = open_worker(files, engine_options, tokenizer)
    load_s = time.perf_counter() - begin
    try:
        with counted_lines("measuring", "rounds") as progress:
            measured = run_rounds(worker, workload, progress)
    finally:
        with interrupts_held():
            stop(worker)
    figures = summarize(measured, input_len, work, ceiling)
    if as_json:
        click.echo(json.dumps(_describe(worker.model, options, workload, work, ceiling, figures, load_s)))
        return
    for line in _lines(worker.model, workload, ceiling, figures):
        show(line)


def _bounds(checkpoint: Checkpoint, options: EngineOptions, workload: Workload) -> tuple[ModelWork, Ceiling]:
    """What the model has to do, and what the machine can; before the engine has threads that would be in the way."""
    with importing_torch():
        import torch

        from cutaway.benchmark.ceiling import measure_ceiling
        from cutaway.benchmark.model import describe_work
    cpu = read_cpu()
    work = describe_work(checkpoint, options)
    step_bytes = work.decode_bytes([workload.input_len + workload.output_len] * workload.batch)
    product_dtype = torch.bfloat16 if cpu.has_bfloat16 else torch.float32
    return work, measure_ceiling(cpu.num_usable_cores, step_bytes, product_dtype)


def _describe(
    model: ModelFacts,
    options: ModelOptions,
    workload: Workload,
    work: ModelWork,
    ceiling: Ceiling,
    figures: OfflineFigures,
    load_s: float,
) -> dict[str, object]:
    """The JSON object."""
    described = asdict(figures) | {"ttft_ms": figures.ttft_ms.named(), "itl_ms": figures.itl_ms.named()}
    return {
        "engine": {
            "version": model.version,
            "model": model.name,
            "quantization": model.quantization,
            "kernels": model.kernels,
            "dtype": model.dtype,
            "num_threads": model.num_threads,
            "worker": options.worker,
            "prefix_cache": options.prefix_cache,
            "cache_tokens": model.cache_tokens,
            "load_ms": 1e3 * load_s,
        },
        "workload": asdict(workload),
        "machine": {"processor": read_cpu().model, "load_average": os.getloadavg()[0], **asdict(ceiling)},
        "work": {
            "matrix_bytes": work.matrix_bytes,
            "kv_bytes_per_token": work.kv_bytes * len(work.windows),
            "prefill_macs_per_prompt": work.prefill_macs(workload.input_len),
        },
        **described,
    }


def _lines(model: ModelFacts, workload: Workload, ceiling: Ceiling, figures: OfflineFigures) -> list[str]:
    rows = [
        ("model", f"{model.name}, {model.quantization}; kernels {model.kernels}, {model.dtype}"),
        ("threads", f"{model.num_threads}; load of the machine {os.getloadavg()[0]:,.1f} in the last minute"),
        (
            "load",
            f"{workload.batch:,} requests of {workload.input_len:,} + {workload.output_len:,} tokens; "
            f"{workload.rounds:,} rounds after {workload.warmup:,} to warm up",
        ),
        (
            "machine",
            f"reads {ceiling.read_gb_per_second:,.1f} GB/s ({ceiling.read_bytes / 1e6:,.0f} MB), multiplies "
            f"{ceiling.gmac_per_second:,.0f} GMAC/s ({ceiling.arithmetic}); {ceiling.num_threads} threads",
        ),
        (
            "prefill",
            f"{_spread(figures.prefill_tokens_per_second)}; {figures.prefill_gmac_per_second:,.0f} GMAC/s, "
            f"{figures.prefill_arithmetic_share:.0%} of the arithmetic limit",
        ),
        (
            "decode",
            f"{_spread(figures.decode_tokens_per_second)}; {figures.decode_read_gb_per_second:,.1f} GB/s, "
            f"{figures.decode_bandwidth_share:.0%} of the bandwidth; {figures.decode_gmac_per_second:,.0f} GMAC/s, "
            f"{figures.decode_arithmetic_share:.0%} of the arithmetic limit",
        ),
        ("TTFT", _distribution(figures.ttft_ms)),
        ("ITL", _distribution(figures.itl_ms)),
    ]
    return [f"{name:<8} {value}" for name, value in rows]


def _spread(spread: Spread) -> str:
    return f"{spread.median:,.1f} tokens/s (from {spread.min:,.1f} to {spread.max:,.1f})"


def _distribution(values: Distribution) -> str:
    named = values.named()
    return ", ".join(f"{name} {named[name]:,.2f} ms" for name in named if name.startswith("p"))
