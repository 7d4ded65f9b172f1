"""The process in which chat templates are rendered. Run as a script; never imported by the rest.

Owns one loop: read a job from standard input, render it, write the reply to standard output; both are frames of eight
bytes of length and that many bytes of JSON. Refuses to know models and prompts, and imports nothing of the package, so
that it starts quickly.

A template is a program that came with a model's weights. It runs under fuel, but fuel does not cover everything: a
namespace that holds itself overflows the stack, and a width in a format string takes gigabytes. So it gets a process of
its own, which has little memory and which its parent ends when it takes too long. Nothing in reach of a template opens
files or reads the environment: there is no loader, and the only functions are those that templates need.
"""

import json
import re
import struct
import sys
from datetime import datetime
from typing import Any, BinaryIO

import minijinja

MAX_MEMORY_BYTES = 2 * 2**30
MAX_FORMAT_CHARS = 200

_LENGTH = struct.Struct(">Q")
_GLOBALS = frozenset({"range", "dict", "namespace", "cycler", "joiner"})
# Training code marks what an assistant said with {% generation %}; for a prompt that is a block without effect. A
# `with` keeps what is set inside from leaking out, as the original does.
_GENERATION = re.compile(r"(\{%[-+]?\s*)(end)?generation(\s*[-+]?%\})")


class Refused(Exception):
    """The template called ``raise_exception``: it does not take these messages."""


def main() -> None:
    """Serve jobs until the parent closes the pipe."""
    _limit_resources()
    replies = sys.stdout.buffer
    _write_frame(replies, {"ready": True})
    while (frame := _read_frame(sys.stdin.buffer)) is not None:
        _write_frame(replies, _answer(json.loads(frame)))


def _answer(job: dict[str, Any]) -> dict[str, object]:
    try:
        text = render(job)
    except Refused as error:
        return {"error": "Refused", "detail": str(error)}
    except minijinja.TemplateError as error:
        return {"error": error.kind, "detail": error.detail or error.message, "line": error.line}
    except (MemoryError, RecursionError) as error:
        return {"error": type(error).__name__, "detail": ""}
    except Exception as error:
        return {"error": "Failed", "detail": f"{type(error).__name__}: {error}"}
    if len(text) > job["max_output_chars"]:
        return {"error": "OutputTooLong", "detail": f"{len(text):,}"}
    return {"text": text}


def render(job: dict[str, Any]) -> str:
    """Render ``job["source"]`` with the variables of ``job["context"]``."""
    now = datetime.fromisoformat(job["now"])

    def strftime_now(date_format: str) -> str:
        if len(date_format) > MAX_FORMAT_CHARS:
            raise ValueError(f"a date format of {len(date_format):,} characters is longer than {MAX_FORMAT_CHARS}")
        date = now.strftime(date_format)
        if date_format and not date:
            raise ValueError(f"the date format {date_format!r} gives nothing")
        return date

    environment = minijinja.Environment(
        fuel=job["fuel"],
        trim_blocks=True,
        lstrip_blocks=True,
        filters={"tojson": _to_json},
        globals={"raise_exception": _raise_exception, "strftime_now": strftime_now},
    )
    for name in environment.globals.keys() - _GLOBALS - {"raise_exception", "strftime_now"}:
        environment.remove_global(name)
    return environment.render_str(_GENERATION.sub(_plain_block, job["source"]), **job["context"])


def _plain_block(match: re.Match[str]) -> str:
    return f"{match[1]}{'endwith' if match[2] else 'with'}{match[3]}"


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """The filter as transformers defines it: characters stay as they are, and nothing is escaped for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: object = "") -> None:
    raise Refused(str(message))


def _limit_resources() -> None:
    try:
        import resource
    except ImportError:  # not on Windows
        return
    _, inherited = resource.getrlimit(resource.RLIMIT_AS)  # a process cannot raise what it was given
    limit = MAX_MEMORY_BYTES if inherited == resource.RLIM_INFINITY else min(MAX_MEMORY_BYTES, inherited)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _read_frame(stream: BinaryIO) -> bytes | None:
    header = stream.read(_LENGTH.size)
    return stream.read(_LENGTH.unpack(header)[0]) if len(header) == _LENGTH.size else None


def _write_frame(stream: BinaryIO, value: dict[str, object]) -> None:
    data = json.dumps(value).encode()
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


if __name__ == "__main__":
    main()
