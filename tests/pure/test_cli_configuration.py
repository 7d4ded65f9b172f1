"""Options of the server from the command line, the environment and a file: which one counts, and what is refused."""

import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cutaway.cli.serve import serve
from cutaway.errors import InvalidValue


def show(*args: str, **env: str) -> Result:
    return CliRunner().invoke(serve, [*args, "--print-config"], env=env)


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "cutaway.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def places(shown: Result) -> dict[str, tuple[object, str]]:
    """Value and place of every option that is set."""
    assert shown.exit_code == 0, shown.output
    values = tomllib.loads(shown.output)
    comments = {line.split(" = ")[0]: line.rsplit("# ", 1)[1] for line in shown.output.splitlines()}
    return {name: (value, comments[name]) for name, value in values.items()}


def test_the_command_line_comes_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, 'port = 1\nhost = "::1"\nthreads = 3\nkv-memory = "2GB"\nprefix-cache = false\n')
    found = places(show("--port", "3", "--config", path, CUTAWAY_SERVE_PORT="2", CUTAWAY_SERVE_HOST="127.0.0.2"))
    assert found["port"] == (3, "command line")
    assert found["host"] == ("127.0.0.2", "CUTAWAY_SERVE_HOST")
    assert found["threads"] == (3, "file")
    assert found["kv-memory"] == (2_000_000_000, "file")
    assert found["prefix-cache"] == (False, "file")
    assert found["numerics"] == ("invariant", "default")


def test_what_is_shown_is_a_file_that_says_the_same(tmp_path: Path) -> None:
    path = write(tmp_path, 'model = "한국어 \\" # \\\\ .gguf"\nthreads = 2\nkernels = "reference"\n')
    first = show("--config", path, "--no-prefix-cache")
    again = show("--config", write(tmp_path, first.output))
    assert tomllib.loads(again.output) == tomllib.loads(first.output)
    assert tomllib.loads(first.output)["model"] == '한국어 " # \\ .gguf'


def test_the_environment_may_name_the_file(tmp_path: Path) -> None:
    assert places(show(CUTAWAY_SERVE_CONFIG=write(tmp_path, "port = 7")))["port"] == (7, "file")


def test_a_flag_in_the_environment() -> None:
    assert places(show(CUTAWAY_SERVE_PREFIX_CACHE="false"))["prefix-cache"] == (False, "CUTAWAY_SERVE_PREFIX_CACHE")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prot = 1", ["'prot'", "did you mean port?"]),
        ("config = 'x'", ["'config'"]),
        ("print-config = true", ["'print-config'"]),
        ("kv_memory = 1", ["'kv_memory'", "did you mean kv-memory?"]),
        ("[serve]\nport = 1", ["'serve'"]),
        ("port = true", ["port", "True"]),
        ("prefix-cache = 1", ["prefix-cache", "true or false"]),
        ("host = ['a']", ["host", "['a']"]),
        ("port = 65536", ["port", "65535", "(file)"]),
        ("port = ", ["is not TOML"]),
        ("[" * 100_000, ["is not TOML"]),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, text: str, said: list[str]) -> None:
    error = show("--config", write(tmp_path, text)).exception
    assert isinstance(error, InvalidValue)
    for part in said:
        assert part in str(error).replace("65,535", "65535")


@pytest.mark.parametrize("text", ["port = 1.5", "port = nan", "threads = 'x'", "worker = 'fork'"])
def test_a_value_of_the_wrong_kind_is_refused_with_its_place(tmp_path: Path, text: str) -> None:
    shown = show("--config", write(tmp_path, text))
    assert shown.exit_code == 2
    assert f"--{text.split()[0]}" in shown.output
    assert "(file)" in shown.output


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    error = show("--config", str(tmp_path / "none.toml")).exception
    assert isinstance(error, InvalidValue)
    assert "none.toml cannot be read: No such file or directory" in str(error)


def test_a_file_that_is_no_text_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(b'host = "\xff"')
    error = show("--config", str(tmp_path / "x.toml")).exception
    assert isinstance(error, InvalidValue)
    assert "is not TOML" in str(error)


def test_a_variable_for_no_option_is_refused() -> None:
    error = show(CUTAWAY_SERVE_PRT="1").exception
    assert isinstance(error, InvalidValue)
    assert "CUTAWAY_SERVE_PRT" in str(error)
    assert "did you mean CUTAWAY_SERVE_PORT?" in str(error)


def test_a_wrong_value_in_the_environment_is_refused_with_its_name() -> None:
    assert "(CUTAWAY_SERVE_PORT)" in show(CUTAWAY_SERVE_PORT="x").output
    assert "(CUTAWAY_SERVE_THREADS)" in str(show(CUTAWAY_SERVE_THREADS="0").exception)
