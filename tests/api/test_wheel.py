"""The wheel that is built from the working tree, installed somewhere else."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from cutaway import __version__

ROOT = Path(__file__).parents[2]
LOAD = """
import cutaway.glass.words, cutaway.text.renderer
for language in cutaway.glass.words.LANGUAGES:
    cutaway.glass.words.load_words(language)
print(cutaway.glass.words.__file__, cutaway.text.renderer.__file__, sep="\\n")
"""


def python(*arguments: str, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=cwd, env={**os.environ, **(env or {})}
    )
    assert done.returncode == 0, done
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    python("-m", "pip", "wheel", *options, str(ROOT), cwd=folder)
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "cutaway"], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.splitlines()
    names = set(zipfile.ZipFile(wheel).namelist())
    for name in ("cutaway/glass/words/en.toml", "cutaway/glass/words/ko.toml", "cutaway/text/render_process.py"):
        assert name in names
    assert {name for name in tracked if (ROOT / name).exists()} <= names


def test_the_installed_wheel_works_without_the_working_tree(wheel: Path, tmp_path: Path) -> None:
    target, elsewhere = tmp_path / "installed", tmp_path / "elsewhere"
    elsewhere.mkdir()
    python("-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(wheel), cwd=elsewhere)
    env = {"PYTHONPATH": str(target)}
    assert python("-m", "cutaway", "--version", cwd=elsewhere, env=env) == f"cutaway {__version__}\n"
    files = [Path(line) for line in python("-c", LOAD, cwd=elsewhere, env=env).splitlines()]
    assert len(files) == 2
    assert all(file.is_relative_to(target) for file in files)
