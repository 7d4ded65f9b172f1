"""``cutaway doctor``: what this machine offers, what Cutaway makes of it, and what limits the speed here.

Nothing leaves the machine unless ``--network`` asks whether the package index can be reached.
"""

import json
import os
import platform
import re
import shutil
import time
from dataclasses import asdict, dataclass

import click

from cutaway import __version__
from cutaway.cli.facts import HeaderFacts, inspect_model, read_facts
from cutaway.cli.output import show
from cutaway.config import DEFAULT_MODEL, Settings, load_settings
from cutaway.engine.imports import importing_torch
from cutaway.errors import CutawayError, ModelError
from cutaway.hub.catalog import BUILT_IN
from cutaway.hub.resolve import resolve
from cutaway.hub.store import ModelStore
from cutaway.kernels import REFERENCE_KERNELS
from cutaway.machine import Cpu, Memory, read_cpu, read_memory

MEASURE_SECONDS = 0.3
MEASURE_BYTES = 256 << 20
MEASURE_MEMORY_SHARE = 4


@dataclass(frozen=True, slots=True)
class Torch:
    """What does the arithmetic.

    Attributes:
        version: of torch.
        libraries: its linear algebra, with versions.
        capability: instruction set that its own loops use.
        num_threads: threads that Cutaway will let it use.
        dtype: of weights and cache, unless ``--dtype`` says otherwise.
        kernels: Cutaway's own choice of kernels.
        instruction_sets: that the native kernels have here, best first.
        why_no_native: why there are none, if there are none.
        fast_set: what ``--numerics fast`` would take of them, if anything.
    """

    version: str
    libraries: tuple[str, ...]
    capability: str
    num_threads: int
    dtype: str
    kernels: str
    instruction_sets: tuple[str, ...]
    why_no_native: str | None
    fast_set: str | None


@dataclass(frozen=True, slots=True)
class Cache:
    """The folder of downloaded models."""

    path: str
    num_bytes: int
    num_free_bytes: int
    models: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Speed:
    """The bound that memory sets to generating one answer at a time.

    Attributes:
        read_gb_per_second: measured, all threads together, over more memory than most caches hold.
        load_average: programs that wanted the processor in the last minute; above the number of cores the
            measurement, and everything else, suffers from others.
        model: for which the rest holds; empty if it is not here.
        num_token_bytes: what computing one token reads of it, in memory, as Cutaway keeps it.
        tokens_per_second: upper bound.
        sentence: the same in words.
    """

    read_gb_per_second: float
    load_average: float
    model: str
    num_token_bytes: int
    tokens_per_second: float
    sentence: str


@dataclass(frozen=True, slots=True)
class Report:
    """Everything; the fields are those of ``--json``."""

    version: str
    python: str
    system: str
    cpu: Cpu
    memory: Memory
    torch: Torch
    cache: Cache
    index_url: str
    index: str
    speed: Speed


@click.command()
@click.option("--model", default=DEFAULT_MODEL, show_default=True, help="Model that the speed limit is worked out for.")
@click.option("--network", is_flag=True, help="Also see whether the package index can be reached.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def doctor(model: str, network: bool, as_json: bool) -> None:
    """Describe this machine: processor, memory, torch, kernels, models, and what limits the speed here."""
    settings = load_settings()
    report = examine(settings, model, index=_reach(settings.index_url) if network else "not asked (--network asks)")
    if as_json:
        click.echo(json.dumps(asdict(report), indent=2, ensure_ascii=False))
        return
    for line in _lines(report):
        show(line)


def examine(settings: Settings, model: str, index: str) -> Report:
    """Look at everything. Takes about as long as importing torch and the measurement."""
    store = ModelStore(settings.cache_dir, settings.index_url)
    facts = _facts(store, model)
    cpu, memory = read_cpu(), read_memory()
    torch = _torch(cpu)
    return Report(
        version=__version__,
        python=f"{platform.python_version()} ({platform.python_implementation()})",
        system=platform.platform(),
        cpu=cpu,
        memory=memory,
        torch=torch,
        cache=_cache(store),
        index_url=_without_credentials(settings.index_url),
        index=index,
        speed=_speed(model, facts, torch, memory),
    )


def describe_limit(model: str, num_token_bytes: int, gb_per_second: float) -> str:
    """One plain sentence on what limits the speed of one answer at a time."""
    tokens_per_second = gb_per_second * 1e9 / num_token_bytes
    return (
        f"one token of {model} reads {num_token_bytes / 1e6:,.0f} MB of weights; "
        f"at {gb_per_second:,.1f} GB/s that allows at most {tokens_per_second:,.0f} tokens/s for one answer at a time"
    )


def parse_libraries(text: str) -> tuple[str, ...]:
    """Names and versions of linear algebra libraries in the text of ``torch.__config__.show()``."""
    found = []
    if match := re.search(r"Math Kernel Library Version (\S+?)(?:-|\s|$)", text):
        found.append(f"MKL {match[1]}")
    if match := re.search(r"MKL-DNN v(\S+)", text):
        found.append(f"oneDNN {match[1]}")
    if (match := re.search(r"BLAS_INFO=(\w+)", text)) and match[1] != "mkl":
        found.append(f"BLAS {match[1]}")
    return tuple(found)


def _torch(cpu: Cpu) -> Torch:
    # Not by way of the engine, so that a doctor can still be asked when something in there is broken.
    with importing_torch():
        import torch

        from cutaway.kernels.native import fast_set, instruction_sets, why_absent
    return Torch(
        version=torch.__version__,
        libraries=parse_libraries(torch.__config__.show()),
        capability=torch.backends.cpu.get_cpu_capability(),
        num_threads=cpu.num_usable_cores,
        dtype="bfloat16" if cpu.has_bfloat16 else "float32",
        kernels=REFERENCE_KERNELS,
        instruction_sets=instruction_sets(),
        why_no_native=why_absent(),
        fast_set=fast_set(),
    )


def _cache(store: ModelStore) -> Cache:
    models = store.list()
    existing = next(path for path in (store.cache_dir, *store.cache_dir.absolute().parents) if path.exists())
    return Cache(
        path=str(store.cache_dir),
        num_bytes=sum(model.num_bytes for model in models),
        num_free_bytes=shutil.disk_usage(existing).free,
        models=tuple(model.name if model.complete else f"{model.name} (incomplete)" for model in models),
    )


def _speed(model: str, facts: HeaderFacts | str, torch: Torch, memory: Memory) -> Speed:
    from cutaway.benchmark.ceiling import measure_read_bandwidth  # torch, which was imported carefully
    from cutaway.kernels.native import PACKED_TYPES

    num_bytes = min(MEASURE_BYTES, memory.available_bytes // MEASURE_MEMORY_SHARE)
    bandwidth = measure_read_bandwidth(torch.num_threads, num_bytes, MEASURE_SECONDS)
    load_average = os.getloadavg()[0]
    if isinstance(facts, str):
        return Speed(bandwidth, load_average, "", 0, 0.0, facts)
    num_token_bytes = facts.num_read_weights * (2 if torch.dtype == "bfloat16" else 4)
    if torch.instruction_sets and set(re.findall(r"\w+", facts.quantization)) <= set(PACKED_TYPES):
        # The native kernels keep weights as they are stored.
        num_token_bytes = facts.num_read_bytes
    return Speed(
        read_gb_per_second=bandwidth,
        load_average=load_average,
        model=model,
        num_token_bytes=num_token_bytes,
        tokens_per_second=bandwidth * 1e9 / num_token_bytes,
        sentence=describe_limit(model, num_token_bytes, bandwidth),
    )


def _facts(store: ModelStore, model: str) -> HeaderFacts | str:
    """What the model's headers say, or why they say nothing. A name that leads nowhere is an error of the user."""
    stored = store.find(model) if store.is_name(model) else None
    if stored is None and model in store.catalog:
        return f"{model} is not here, so its speed limit is not known (cutaway pull {model})"
    try:
        if stored is None or not stored.complete:
            return inspect_model(resolve(model, store).path)
        facts = read_facts(store, [stored])[model]
    except ModelError as error:
        return f"{model} cannot be read: {error.message}"
    return f"{model} cannot be read: {facts.message}" if isinstance(facts, CutawayError) else facts


def _reach(index_url: str) -> str:
    """Ask the index for the default model's project; says how that went."""
    from cutaway.hub.download import locate

    start = time.perf_counter()
    try:
        locate(BUILT_IN[DEFAULT_MODEL].parts[0], index_url)
    except CutawayError as error:
        return f"not reachable: {error.message}"
    return f"reachable, has {DEFAULT_MODEL}, answered in {(time.perf_counter() - start) * 1e3:,.0f} ms"


def _without_credentials(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//", url)


def _lines(report: Report) -> list[str]:
    cpu, memory, torch, cache, speed = report.cpu, report.memory, report.torch, report.cache, report.speed
    native = ", ".join(torch.instruction_sets) or str(torch.why_no_native)
    if torch.fast_set is not None:
        native += "; --numerics fast"
    limited = " (the container's limit)" if memory.limited_by == "cgroup" else ""
    busy = f"; others keep the processor busy, load {speed.load_average:.1f}" if _is_busy(report) else ""
    rows = [
        ("cutaway", report.version),
        ("python", report.python),
        ("system", report.system),
        ("processor", f"{cpu.model or 'unknown'} ({cpu.architecture})"),
        ("features", " ".join(cpu.features) or "none that kernels here make use of"),
        ("cores", f"{cpu.num_physical_cores} physical, {cpu.num_logical_cores} logical"),
        ("threads", f"{torch.num_threads} for arithmetic"),
        ("memory", f"{_gb(memory.total_bytes)}{limited}, {_gb(memory.available_bytes)} available"),
        ("torch", f"{torch.version}, {', '.join(torch.libraries)}, {torch.capability}"),
        ("kernels", f"native ({native}); {torch.kernels}, {torch.dtype}"),
        ("bandwidth", f"{speed.read_gb_per_second:,.1f} GB/s read by all threads{busy}"),
        ("cache", f"{cache.path}: {_gb(cache.num_bytes)} of models, {_gb(cache.num_free_bytes)} free"),
        ("models", ", ".join(cache.models) or "none yet"),
        ("index", f"{report.index_url}: {report.index}"),
        ("limit", speed.sentence),
    ]
    return [f"{name:<10} {value}" for name, value in rows]


def _is_busy(report: Report) -> bool:
    return report.speed.load_average > report.cpu.num_logical_cores


def _gb(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:,.1f} GB"
