"""Under which names a server may be asked.

A page of another site cannot read what a server on this machine answers, unless the browser takes both for one site.
It does if the page's own name suddenly leads to 127.0.0.1, and whoever owns a name decides where it leads (DNS
rebinding). The request then has that name in its ``Host``, and this is where it ends.
Source: RFC 9110, sections 7.2 (Host) and 15.5.20 (421 Misdirected Request).
"""

import ipaddress
import re
from collections.abc import Iterable

from cutaway.errors import InvalidValue

LOOPBACK = ("localhost", "127.0.0.1", "::1")
WITH_PORT = re.compile(r"(?P<name>\[[^\]]*\]|[^:\[\]]*)(?::\d*)?")
NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")
MAX_NAME_CHARS = 253


def allowed_hosts(host: str, address: str, is_local: bool, added: Iterable[str]) -> frozenset[str] | None:
    """The names that a server answers to.

    Args:
        host: what it was told to listen on.
        address: what that is.
        is_local: whether only this machine can connect.
        added: further names.

    Returns:
        The names, or ``None`` for any: others reach the server under names that it cannot know.

    Raises:
        InvalidValue: one of those added is no name of a host.
    """
    names = frozenset(_read_name(name) for name in added)
    if not (is_local or names):
        return None
    return names | {*LOOPBACK, _plain(host), _plain(address)}


def host_name(header: str) -> str | None:
    """The name in a ``Host``, in the one way to write it here; ``None`` if it is none."""
    found = WITH_PORT.fullmatch(header.strip())
    return _plain(found["name"]) if found is not None and found["name"] else None


def _read_name(value: str) -> str:
    name = _plain(value)
    if len(name) > MAX_NAME_CHARS or not (NAME.fullmatch(name) or _address(name)):
        raise InvalidValue(
            "allowed-host", f"{value[:80]!r} is no name of a host", hint="without scheme, port and path: pc.example"
        )
    return name


def _plain(name: str) -> str:
    """A name without what makes no difference."""
    name = name.lower().removeprefix("[").removesuffix("]").removesuffix(".")
    return _address(name) or name


def _address(name: str) -> str | None:
    try:
        return str(ipaddress.ip_address(name.partition("%")[0]))
    except ValueError:
        return None
