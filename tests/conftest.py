"""What all tiers share: markers by folder, real models, and the installed command in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings
from running_server import RunningServer, running_fake
from standins import HubSite, IndexSite, serving

from cutaway.config import load_settings
from cutaway.hub.resolve import ensure
from cutaway.hub.store import ModelStore

# No test measures time; hypothesis would fail an example that takes longer than 200 ms on a busy machine.
settings.register_profile("cutaway", deadline=None)
settings.load_profile("cutaway")

TESTS = Path(__file__).parent
COMMAND_TIMEOUT_SECONDS = 300


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test after the folder that it lies in: tests/pure gets ``pure``, and so on."""
    for item in items:
        if TESTS in item.path.parents:
            item.add_marker(item.path.relative_to(TESTS).parts[0])


@pytest.fixture(scope="session")
def real_model() -> Callable[[str], Path]:
    """Give the path of a real model by its built-in name; downloads it into the user's cache if it is not there.

    Names: ``smollm2-135m-instruct``, ``gemma-3-270m``, ``qwen2.5-coder-0.5b-instruct``.
    """
    settings = load_settings()
    store = ModelStore(settings.cache_dir, settings.index_url)
    return lambda name: ensure(name, store).path


@dataclass(frozen=True)
class Completed:
    """How a command ended, and what it said."""

    rc: int
    stdout: str
    stderr: str


class CutawayCommand:
    """Runs ``cutaway`` as a user would, in an environment of its own.

    The cache is an empty folder, unless ``env`` names another with ``CUTAWAY_CACHE``; nothing of Hugging Face's
    settings leaks in. A value of ``None`` in ``env`` removes a variable.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache_dir = folder / "cache"
        self.models_dir = self.cache_dir / "models"

    def __call__(
        self, *arguments: str, env: dict[str, str | None] | None = None, stdin: str | bytes = b"", check: bool = False
    ) -> Completed:
        """Run to the end. ``check`` fails the test unless the command succeeds."""
        done = subprocess.run(
            [*self.program, *arguments],
            env=self.environment(env),
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            timeout=COMMAND_TIMEOUT_SECONDS,
            cwd=self.folder,
        )
        completed = Completed(done.returncode, done.stdout.decode(), done.stderr.decode())
        assert not check or completed.rc == 0, completed
        return completed

    def start(self, *arguments: str, env: dict[str, str | None] | None = None) -> "subprocess.Popen[bytes]":
        """Start without waiting; the caller uses the process as a context manager and ends it."""
        return subprocess.Popen(
            [*self.program, *arguments],
            env=self.environment(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
        )

    @property
    def program(self) -> list[str]:
        """The installed command of the environment that runs the tests."""
        return [str(Path(sys.executable).parent / "cutaway")]

    def environment(self, env: dict[str, str | None] | None) -> dict[str, str]:
        """The environment of the process."""
        merged: dict[str, str | None] = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("CUTAWAY_", "HF_"))},
            "CUTAWAY_CACHE": str(self.cache_dir),
            "HF_HOME": str(self.folder / "huggingface"),
            "PYTHONIOENCODING": "utf-8",
            **(env or {}),
        }
        return {name: value for name, value in merged.items() if value is not None}


@pytest.fixture
def cutaway_command(tmp_path: Path) -> CutawayCommand:
    """The installed command with a temporary cache; call it with arguments, get ``rc``, ``stdout``, ``stderr``."""
    return CutawayCommand(tmp_path)


@pytest.fixture
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever proxy the user has, servers on this machine are asked directly."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture
def index_site(no_proxy: None) -> Iterator[IndexSite]:
    """A package index on this machine."""
    with serving(IndexSite()) as site:
        assert isinstance(site, IndexSite)
        yield site


@pytest.fixture
def hub_site(no_proxy: None) -> Iterator[HubSite]:
    """A Hugging Face hub on this machine."""
    with serving(HubSite()) as site:
        assert isinstance(site, HubSite)
        yield site


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tells the engine of ``shared`` how to behave; see ``fake_server``."""
    return tmp_path_factory.mktemp("told")


@pytest.fixture(scope="module")
def shared(folder: Path) -> Iterator[RunningServer]:
    """A server with an engine without a model, for all tests of a file."""
    with running_fake(folder) as server:
        yield server
        assert len(server.lines) == 1, "only bugs are worth a line"
