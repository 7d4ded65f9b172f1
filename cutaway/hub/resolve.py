"""From what a user typed to the files of a model.

Owns the order in which a reference is understood: ``hf:`` first, then a built-in or stored name, then a path.
Refuses to open model files. Invariant: ``resolve`` never touches the network, ``ensure`` only when it must.
"""

import os
from pathlib import Path

from cutaway.errors import CorruptFile, UnknownModel, UsageError
from cutaway.hub.catalog import CatalogEntry
from cutaway.hub.files import ModelFiles, files_at
from cutaway.hub.progress import Progress, no_progress
from cutaway.hub.reference import PREFIX, REPO_ID, HubReference, parse_reference
from cutaway.hub.store import ModelStore


def resolve(reference: str, store: ModelStore) -> ModelFiles:
    """The files of a model that lies on this machine.

    Args:
        reference: a built-in name, the name of a file in the store, a path to a ``.gguf`` file or to a folder with
            ``config.json``, or ``hf:ORG/REPO[:FILE]``.
        store: where downloaded models lie.

    Raises:
        UnknownModel: it leads nowhere, or to a model that has not been downloaded yet.
        UsageError: it is not of a form that can be understood.
        CorruptFile: it leads to an incomplete model.
    """
    if not reference.strip():
        raise UsageError("the name of the model is empty", hint="cutaway models lists what there is")
    if reference.startswith(PREFIX):
        return _resolve_hub(parse_reference(reference), store)
    if _is_path(reference):
        return files_at(_existing(reference))
    return _resolve_name(reference, store)


def ensure(reference: str, store: ModelStore, progress: Progress = no_progress) -> ModelFiles:
    """The files of a model, after downloading it if it is not here; what is incomplete is downloaded again.

    ``progress`` is called with ``(num_done_bytes, num_total_bytes)``, also while another process downloads the
    same model and this one waits for it; it is never called when nothing has to be downloaded.

    Raises:
        UnknownModel: it leads nowhere.
        UsageError: it is not of a form that can be understood.
        DownloadError: it could not be fetched; see its kinds.
    """
    if reference.startswith(PREFIX):
        parsed = parse_reference(reference)
        if (stored := store.find(str(parsed))) is None or not stored.complete:
            from cutaway.hub.huggingface import fetch  # as in _download

            store.link(str(parsed), fetch(parsed, progress))
    elif (entry := store.catalog.get(reference)) is not None:
        stored = store.find(reference)
        if stored is None or not stored.complete:
            _download(entry, store, progress)
    return resolve(reference, store)


def _download(entry: CatalogEntry, store: ModelStore, progress: Progress) -> None:
    # Nothing but a download needs http and ssl; commands that find their model start without them.
    from cutaway.hub.download import download, num_fetched_bytes

    def waiting(folder: Path) -> None:
        progress(num_fetched_bytes(entry, folder), entry.num_download_bytes)

    with store.filling(entry.name, waiting) as folder:
        stored = store.find(entry.name)
        if stored is None or not stored.complete:  # nobody else was faster
            store.install(entry.name, download(entry, store.index_url, folder, progress))


def _resolve_hub(reference: HubReference, store: ModelStore) -> ModelFiles:
    stored = store.find(str(reference))
    if stored is None:
        raise UnknownModel(f"{reference} is not downloaded", hint=f"cutaway pull {reference}")
    return files_at(stored.path, str(reference))


def _resolve_name(name: str, store: ModelStore) -> ModelFiles:
    stored = store.find(name) if store.is_name(name) else None
    if stored is None and name in store.catalog:
        raise UnknownModel(f"{name} is not downloaded", hint=f"cutaway pull {name}")
    if stored is None and os.path.lexists(name):
        return files_at(_existing(name))
    if stored is None:
        raise store.unknown(name, f"there is no model {name!r}")
    if not stored.complete:
        raise CorruptFile(
            f"{stored.path} has {stored.num_bytes:,} bytes, but {store.catalog[name].num_bytes:,} were published",
            hint=f"cutaway pull {name} fetches it again",
        )
    return files_at(stored.path, name)


def _is_path(reference: str) -> bool:
    return "/" in reference or reference.startswith((".", "~")) or reference.endswith(".gguf")


def _existing(reference: str) -> Path:
    try:
        path = Path(reference).expanduser()
        path.stat()
    except FileNotFoundError:
        raise UnknownModel(f"there is no file or folder {reference}", hint=_path_hint(reference)) from None
    except (OSError, RuntimeError, ValueError) as error:  # no permission, no such user, a null character
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UnknownModel(f"{reference!r} cannot be reached: {reason}") from None
    return path


def _path_hint(reference: str) -> str:
    if REPO_ID.fullmatch(reference):
        return f"for a repository of the Hugging Face hub, write hf:{reference}"
    return "cutaway models lists the models that need no path"
