"""Models of the Hugging Face hub: fetching exactly the files that are needed.

Owns the choice among a repository's files. Refuses to keep anything: files go to huggingface_hub's own cache, which
honours HF_HOME and is shared with other programs. Invariants: only data formats are fetched, never pickles or scripts;
all files come from one revision; a file whose SHA-256 the hub publishes is checked against it each time, also one that
lay in the cache already: whoever put it there may have been stopped before checking.
"""

import errno
import hashlib
import logging
import shutil
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from cutaway.errors import ChecksumMismatch, DiskFull, DownloadError, NetworkError, UnknownModel, UsageError
from cutaway.hub.catalog import nearest_names
from cutaway.hub.files import SINGLE_FILE, select_folder_files, split_parts
from cutaway.hub.progress import Progress
from cutaway.hub.reference import PREFIX, HubReference

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoSibling

TIMEOUT_SECONDS = 30.0


def fetch(reference: HubReference, progress: Progress) -> Path:
    """Fetch the model's files and return its GGUF file (of a split one, the first part) or its folder.

    Raises:
        UnknownModel: no such repository or file, or no right to see it.
        UsageError: the repository holds several models and none was named, or none that can be read.
        NetworkError: the hub cannot be reached, or the transfer was cut.
        ChecksumMismatch: what arrived is not what the hub published.
        DiskFull: there is no room.
    """
    from huggingface_hub import HfApi, constants

    with _explained(reference):
        info = HfApi().model_info(reference.repo_id, files_metadata=True, timeout=TIMEOUT_SECONDS)
    siblings = {sibling.rfilename: sibling for sibling in info.siblings or ()}
    chosen = choose_files(reference, tuple(siblings))
    sizes = [siblings[name].size or 0 for name in chosen]
    _check_room(Path(constants.HF_HUB_CACHE), sum(sizes))
    progress(0, sum(sizes))
    paths: list[Path] = []
    for number, name in enumerate(chosen):
        num_before = sum(sizes[:number])

        def report(num_done: int, num_before: int = num_before) -> None:
            progress(min(num_before + num_done, sum(sizes)), sum(sizes))

        with _explained(reference):
            paths.append(_fetch_file(reference, info.sha or "main", siblings[name], report))
    progress(sum(sizes), sum(sizes))
    return paths[0] if chosen[0].endswith(".gguf") else paths[0].parent


def choose_files(reference: HubReference, names: Sequence[str]) -> tuple[str, ...]:
    """Of a repository's file names, those that the reference means.

    A named file brings all parts of its split; without one the safetensors model at the top of the repository is
    taken, or else its only GGUF model.

    Raises:
        UnknownModel: the named file is not there.
        UsageError: none was named, and there are several or none.
    """
    ggufs = sorted({_first_part(name) for name in names if name.endswith(".gguf")})
    if reference.filename is not None:
        parts = _all_parts(reference.filename)
        missing = [part for part in parts if part not in names]
        if not missing:
            return parts
        near = nearest_names(missing[0], ggufs) or tuple(ggufs[:8])
        raise UnknownModel(
            f"{reference.repo_id} has no file {missing[0]}",
            hint="it has " + ", ".join(near) if near else "it has no .gguf file at all",
        )
    if folder := select_folder_files(name for name in names if "/" not in name):
        return folder
    if len(ggufs) == 1:
        return _all_parts(ggufs[0])
    if ggufs:
        listed = "".join(f"\n  {PREFIX}{reference.repo_id}:{name}" for name in ggufs)
        raise UsageError(f"{reference.repo_id} holds {len(ggufs)} GGUF models; name one of them:{listed}")
    raise UsageError(
        f"{reference.repo_id} holds neither a .gguf file nor a config.json with {SINGLE_FILE} or its index",
        hint="weights in pickle files (*.bin, *.pt) are refused, because such a file can run code",
    )


def _first_part(name: str) -> str:
    return _all_parts(name)[0]


def _all_parts(name: str) -> tuple[str, ...]:
    folder, slash, filename = name.rpartition("/")
    return tuple(folder + slash + part for part in split_parts(filename))


def _fetch_file(reference: HubReference, revision: str, sibling: "RepoSibling", report: Callable[[int], None]) -> Path:
    from huggingface_hub import hf_hub_download

    name = sibling.rfilename
    path = Path(hf_hub_download(reference.repo_id, name, revision=revision, tqdm_class=_bar_that(report)))
    published = sibling.lfs.sha256 if sibling.lfs else None
    if published:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != published:
            path.resolve().unlink(missing_ok=True)
            path.unlink(missing_ok=True)
            raise ChecksumMismatch(
                f"{name} of {reference.repo_id} is not what was published: "
                f"SHA-256 {found}, but {published} was expected",
                hint="try again; if it stays so, a proxy in between delivers something else",
            )
    return path


def _bar_that(report: Callable[[int], None]) -> type:
    """A progress bar of the kind that huggingface_hub makes for itself, which shows nothing and reports."""

    class Bar:
        def __init__(self, *, initial: int = 0, **settings: object) -> None:
            self.num_done = initial

        def __enter__(self) -> "Bar":
            return self

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None:
            self.close()

        def update(self, num_new: float | None = 1) -> None:
            self.num_done += int(num_new or 0)
            report(self.num_done)

        def update_transfer(self, num_new: float | None = 1) -> None:
            """Of compressed transfers; the bytes that become part of the file are what counts here."""

        def close(self) -> None:
            """Nothing is shown, so nothing needs to be taken away."""

    return Bar


def _check_room(folder: Path, num_needed: int) -> None:
    existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    num_free = shutil.disk_usage(existing).free
    if num_free < num_needed:
        raise DiskFull(
            f"the download needs {num_needed / 1e6:,.0f} MB, but {num_free / 1e6:,.0f} MB are free in {folder}",
            hint="make room, or let HF_HOME name a folder on a larger disk",
        )


@contextmanager
def _explained(reference: HubReference) -> Iterator[None]:
    """Turn what huggingface_hub raises into errors of the tree, and keep its log off the terminal."""
    from huggingface_hub import errors
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]  # its HTTP client's, whichever that is

    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    except errors.GatedRepoError:
        raise UnknownModel(
            f"{reference.repo_id} is open only to those who accepted its terms",
            hint=f"accept them at https://huggingface.co/{reference.repo_id}, then log in: hf auth login",
        ) from None
    except errors.RepositoryNotFoundError:
        raise UnknownModel(
            f"the Hugging Face hub has no model {reference.repo_id}, or not for you",
            hint="check the spelling; if it is private, log in: hf auth login",
        ) from None
    except (errors.HFValidationError, errors.RevisionNotFoundError) as error:
        raise UnknownModel(f"{reference}: {_first_line(error)}") from None
    except (HTTPError, errors.LocalEntryNotFoundError, errors.XetDownloadError, OSError) as error:
        raise _failure(error) from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:  # an answer that is no description of a model
        raise _failure(error) from None
    finally:
        logger.setLevel(level)


def _failure(error: Exception) -> DownloadError:
    """What a failed exchange with the hub means to a user."""
    from huggingface_hub import constants, errors

    where = urllib.parse.urlsplit(constants.ENDPOINT).netloc.rpartition("@")[2]
    if not where:
        return NetworkError(
            f"HF_ENDPOINT {constants.ENDPOINT!r} is not the address of a hub", hint="https://huggingface.co"
        )
    hint = "check the network; HTTPS_PROXY names a proxy, HF_ENDPOINT another hub"
    if isinstance(error, errors.OfflineModeIsEnabled):
        return NetworkError(f"HF_HUB_OFFLINE forbids to ask {where}", hint="unset it to download the model once")
    if isinstance(error, errors.HfHubHTTPError):
        status = error.response.status_code
        hint = "it may want you to log in: hf auth login" if status in (401, 403) else hint
        return NetworkError(f"{where} answered {status}: {_first_line(error)}", hint=hint)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return DiskFull(
            f"the disk took no more while downloading: {error.strerror}",
            hint="make room, or let HF_HOME name a folder on a larger disk",
        )
    if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR):
        return DownloadError(
            f"cannot write {error.filename or 'the Hugging Face cache'}: {error.strerror}",
            hint="let HF_HOME name a folder that you may write to",
        )
    cause = error.__cause__ or error
    return NetworkError(f"the download from {where} failed: {_first_line(cause)}", hint=hint)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
