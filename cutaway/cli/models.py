"""``cutaway pull``, ``cutaway models`` and ``cutaway rm``: getting models, seeing them, and being rid of them."""

import json
import os
import sys
from dataclasses import asdict, dataclass

import click

from cutaway.cli.facts import HeaderFacts, read_facts
from cutaway.cli.model import announce_download
from cutaway.cli.output import show, tell
from cutaway.cli.progress import shown_progress
from cutaway.config import DEFAULT_MODEL, load_settings
from cutaway.errors import CutawayError, UnknownModel, UsageError
from cutaway.hub.catalog import CatalogEntry, Purpose, nearest_names
from cutaway.hub.reference import PREFIX, REPO_ID, parse_reference
from cutaway.hub.resolve import ensure
from cutaway.hub.store import ModelStore, StoredModel
from cutaway.printable import printable


@dataclass(frozen=True, slots=True)
class Row:
    """One model as ``cutaway models`` shows it; the fields are those of ``--json``.

    Attributes:
        name: what to type.
        status: ``ready``, ``corrupt`` (see ``problem``) or ``available`` (not downloaded yet).
        num_bytes: size on the disk, or what there would be.
        architecture, quantization, context_length: from its files; unknown before they are here.
        path: where it lies.
        licence, licence_url, note: of a built-in model.
        problem: why it cannot be used.
    """

    name: str
    status: str
    num_bytes: int
    architecture: str | None = None
    quantization: str | None = None
    context_length: int | None = None
    path: str | None = None
    licence: str | None = None
    licence_url: str | None = None
    note: str | None = None
    problem: str | None = None


@click.command()
@click.argument("model")
def pull(model: str) -> None:
    """Download MODEL, unless it is here already.

    MODEL is a built-in name (see: cutaway models --all) or hf:ORG/REPO[:FILE]. What arrives is checked by SHA-256.
    An interrupted download leaves nothing behind.
    """
    store = _store()
    if model.startswith(PREFIX):
        parse_reference(model)
    elif not store.is_name(model) or (model not in store.catalog and store.find(model) is None):
        raise _not_downloadable(store, model)
    entry, present = store.catalog.get(model), store.find(model)
    if present is not None and present.complete and _is_sound(present, entry):
        show(f"{model} is already here: {present.path}")
        return
    announce_download(model, store)
    with shown_progress(model) as progress:
        files = ensure(model, store, progress)
    show(f"{model} is ready: {files.path}")


@click.command()
@click.option("--all", "show_all", is_flag=True, help="Show test models too, and licences.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def models(show_all: bool, as_json: bool) -> None:
    """List the models that are here and those that can be pulled."""
    store = _store()
    stored = store.list()
    facts = read_facts(store, [model for model in stored if model.complete])
    rows = [_stored_row(store, model, facts.get(model.name)) for model in stored]
    present = {model.name for model in stored}
    for entry in store.catalog.values():
        if entry.name not in present and (show_all or entry.purpose is Purpose.EVERYONE):
            rows.append(_available_row(entry))
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows], indent=2, ensure_ascii=False))
        return
    for line in _table(rows):
        show(line)
    if show_all:
        click.echo()
        for row in rows:
            if row.licence:
                show(f"{row.name}: {row.licence}, {row.licence_url}; {row.note}")
    elif len(rows) < len(present | set(store.catalog)):
        click.echo("\ncutaway models --all shows test models too")


@click.command()
@click.argument("model")
@click.option("--yes", is_flag=True, help="Do not ask.")
def rm(model: str, yes: bool) -> None:
    """Remove the downloaded MODEL from the cache folder.

    Of an hf: model only Cutaway's note of it goes; its files belong to the cache of the Hugging Face hub.
    """
    store = _store()
    found = store.find(model) if store.is_name(model) or model.startswith(PREFIX) else None
    if found is not None and not yes and not _confirmed(f"Remove {model}, {_size(found.num_bytes)}? [y/N] "):
        tell("Nothing was removed.")
        sys.exit(1)
    removed = store.remove(model)
    if removed.name.startswith(PREFIX):
        show(f"Forgot {removed.name}. Its files stay in the cache of the Hugging Face hub: {removed.path}")
        tell("To free the space: hf cache rm")
    else:
        show(f"Removed {removed.name}, {_size(removed.num_bytes)}.")


def _store() -> ModelStore:
    settings = load_settings()
    return ModelStore(settings.cache_dir, settings.index_url)


def _not_downloadable(store: ModelStore, model: str) -> CutawayError:
    if os.path.lexists(model):
        return UsageError(
            f"{model} is a path, so there is nothing to download", hint=f'cutaway ask --model {model} "…"'
        )
    offered = [entry.name for entry in store.catalog.values() if entry.purpose is Purpose.EVERYONE]
    if REPO_ID.fullmatch(model):
        hint = f"for a repository of the Hugging Face hub, write {PREFIX}{model}"
    elif near := nearest_names(model, store.catalog):
        hint = "did you mean " + " or ".join(near) + "?"
    else:
        hint = f"what can be pulled is a built-in name ({', '.join(offered)}) or hf:ORG/REPO[:FILE]"
    return UnknownModel(f"there is no model {model!r} to download", hint=hint)


def _is_sound(present: StoredModel, entry: CatalogEntry | None) -> bool:
    """Whether a model that seems complete has the published bytes; says so if it has not."""
    if entry is None:
        return True
    from cutaway.hub.download import verify

    try:
        if verify(present.path, entry):
            return True
    except OSError as error:
        raise CutawayError(f"cannot read {present.path}: {error.strerror or error}") from None
    tell(f"{present.path} is not what was published; fetching it again")
    present.path.unlink(missing_ok=True)
    return False


def _confirmed(question: str) -> bool:
    click.echo(printable(question), err=True, nl=False)
    try:
        answer = sys.stdin.buffer.readline().decode(errors="replace")
    except OSError:  # such as a descriptor that is open for writing only
        answer = ""
    if not answer:
        click.echo(err=True)
        raise UsageError("there was no answer, so nothing was removed", hint="--yes removes without asking")
    return answer.strip().lower() in ("y", "yes")


def _stored_row(store: ModelStore, model: StoredModel, facts: HeaderFacts | CutawayError | None) -> Row:
    entry = store.catalog.get(model.name)
    problem = None
    if not model.complete:
        expected = f", {entry.num_bytes:,} were published" if entry else ""
        problem = f"incomplete: {model.num_bytes:,} bytes{expected}"
    elif isinstance(facts, CutawayError):
        problem = facts.message
    sound = facts if isinstance(facts, HeaderFacts) else None
    return Row(
        name=model.name,
        status="corrupt" if problem else "ready",
        num_bytes=model.num_bytes,
        architecture=sound.architecture if sound else None,
        quantization=sound.quantization if sound else None,
        context_length=sound.context_length if sound else None,
        path=str(model.path),
        licence=entry.licence if entry else None,
        licence_url=entry.licence_url if entry else None,
        note=entry.note if entry else None,
        problem=problem,
    )


def _available_row(entry: CatalogEntry) -> Row:
    return Row(
        name=entry.name,
        status="available",
        num_bytes=entry.num_bytes,
        licence=entry.licence,
        licence_url=entry.licence_url,
        note=entry.note,
    )


def _table(rows: list[Row]) -> list[str]:
    cells = [("NAME", "SIZE", "QUANTIZATION", "CONTEXT", "WHERE"), *map(_cells, rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(5)]
    return [
        f"{name:{widths[0]}}  {size:>{widths[1]}}  {kind:{widths[2]}}  {context:>{widths[3]}}  {where}"
        for name, size, kind, context, where in cells
    ]


def _cells(row: Row) -> tuple[str, str, str, str, str]:
    if row.status == "available":
        where = f"not here yet: cutaway pull {row.name}"
    else:
        where = f"corrupt: {row.problem}" if row.problem else row.path or ""
    context = f"{row.context_length:,}" if row.context_length else "-"
    name = f"{row.name} (default)" if row.name == DEFAULT_MODEL else row.name
    return name, _size(row.num_bytes), row.quantization or "-", context, where


def _size(num_bytes: int) -> str:
    if num_bytes < 10**5:
        return f"{num_bytes:,} bytes"
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 10**9 else f"{num_bytes / 1e6:.1f} MB"
