"""A command whose options may also stand in a file and in the environment.

Owns where a value comes from: the command line, else the environment, else the file, else the default. One definition
of an option serves all of them: ``--kv-memory`` is ``CUTAWAY_SERVE_KV_MEMORY`` and, in TOML, ``kv-memory``. Invariant:
a name that is no option is refused, wherever it stands.
"""

import difflib
import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from cutaway.config import environment_names
from cutaway.errors import InvalidValue

FILE_OPTION = "config"
PRINT_OPTION = "print_config"


class ConfiguredCommand(click.Command):
    """A command with ``--config``, which names a TOML file with options, and ``--print-config``, which shows them all.

    Its ``auto_envvar_prefix`` must be set: what the names of its options in the environment begin with.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += [
            click.Option(
                ["--config"],
                type=click.Path(path_type=Path),
                is_eager=True,  # before any option that asks what stands in the file
                expose_value=False,
                callback=lambda ctx, param, path: self._take_file(ctx, path),
                help="TOML file with options, named as here without the dashes before them.",
            ),
            click.Option(
                ["--print-config"], is_flag=True, help="Show every option, and where its value comes from, and end."
            ),
        ]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, and say of a wrong value where it stands."""
        try:
            rest = super().parse_args(ctx, args)
        except click.BadParameter as error:
            place = "" if error.param is None else self._place(ctx, error.param)
            if not place:
                raise
            raise click.BadParameter(f"{error.message} ({place})", ctx, error.param, error.param_hint) from None
        except InvalidValue as error:
            option = self._options().get(error.name.replace("_", "-"))
            if option is not None and (place := self._place(ctx, option)):
                error.message += f" ({place})"
            raise
        self._check_environment(ctx)
        return rest

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, or show its options."""
        if ctx.params.pop(PRINT_OPTION):
            return click.echo("\n".join(self._lines(ctx)))
        return super().invoke(ctx)

    def _options(self) -> dict[str, click.Parameter]:
        """What may stand in a file, by the name that it has there."""
        return {
            option.opts[-1].removeprefix("--"): option
            for option in self.params
            if option.name not in (FILE_OPTION, PRINT_OPTION)
        }

    def _take_file(self, ctx: click.Context, path: Path | None) -> None:
        if path is None:
            return
        options = self._options()
        values = {}
        for name, value in _read_toml(path).items():
            if name not in options:
                raise InvalidValue("config", f"{path}: there is no option {name!r}", hint=_nearest(name, options))
            option = options[name]
            assert option.name is not None
            values[option.name] = _as_argument(path, name, value, option)
        ctx.default_map = values

    def _check_environment(self, ctx: click.Context) -> None:
        assert ctx.auto_envvar_prefix is not None
        prefix = f"{ctx.auto_envvar_prefix}_"
        known = [f"{prefix}{option.name}".upper() for option in self.params]
        for name in environment_names(prefix):
            if name not in known:
                raise InvalidValue(name, "there is no option for this variable", hint=_nearest(name, known))

    def _lines(self, ctx: click.Context) -> Iterable[str]:
        """All options as a TOML file that says the same."""
        lines = {}
        for name, option in self._options().items():
            assert option.name is not None
            value = ctx.params[option.name]
            lines[f"# {name} is not set" if value is None else f"{name} = {_as_toml(value)}"] = (
                self._place(ctx, option) or "default"
            )
        width = max(map(len, lines))
        return [f"{line:{width}}  # {place}" for line, place in lines.items()]

    def _place(self, ctx: click.Context, option: click.Parameter) -> str:
        """Where the value of an option stands; empty for a default."""
        assert option.name is not None
        source = ctx.get_parameter_source(option.name)
        if source is ParameterSource.COMMANDLINE:
            return "command line"
        if source is ParameterSource.ENVIRONMENT:
            return f"{ctx.auto_envvar_prefix}_{option.name}".upper()
        return "file" if source is ParameterSource.DEFAULT_MAP else ""


def _read_toml(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise InvalidValue("config", f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidValue("config", f"{path} is not TOML: {error}") from None


def _as_argument(path: Path, name: str, value: object, option: click.Parameter) -> object:
    """A value of a file as the command line would have it, so that an option's own type judges it."""
    is_flag = isinstance(option, click.Option) and option.is_flag
    kind = "true or false" if is_flag else "a list of texts" if option.multiple else "a text or a number"
    if is_flag and isinstance(value, bool):
        return value
    if option.multiple and isinstance(value, list) and all(isinstance(part, str) for part in value):
        return value
    if not is_flag and not option.multiple and isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)
    raise InvalidValue("config", f"{path}: {name} is {kind}, not {value!r:.80}")


def _as_toml(value: object) -> str:
    """A value of an option; JSON's texts, numbers, truth values and lists are TOML's."""
    return json.dumps(value, ensure_ascii=False)


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {near[0]}?" if near else "leave it out"
