"""The address that a server listens on."""

import errno
import ipaddress
import socket

from cutaway.errors import InvalidValue

HINTS = {
    errno.EADDRINUSE: "another server is running there; --port 0 takes a port that is free",
    errno.EACCES: "ports below 1024 are for the system; take a higher one",
}


def open_socket(host: str, port: int) -> socket.socket:
    """A socket that has the address for itself; nobody can connect before it listens.

    Raises:
        InvalidValue: it is no address of this machine, or is in use.
    """
    address, family = _resolve(host, port)
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise _unusable(host, port, error) from None
    return bound


def listen(bound: socket.socket) -> None:
    """Take connections from now on.

    Raises:
        InvalidValue: another socket with the same address was faster.
    """
    try:
        bound.listen()
    except OSError as error:
        host, port = bound.getsockname()[:2]
        raise _unusable(host, port, error) from None


def url_of(bound: socket.socket) -> str:
    """Where a socket can be reached with HTTP."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_local(bound: socket.socket) -> bool:
    """Whether only this machine can connect to it."""
    return ipaddress.ip_address(bound.getsockname()[0].partition("%")[0]).is_loopback


def _resolve(host: str, port: int) -> tuple[tuple[object, ...], int]:
    """The first address of a name, of version 4 if there is one."""
    if not host:
        raise InvalidValue("host", "it is empty", hint="0.0.0.0 is every address of this machine")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no name of a host"
        raise InvalidValue("host", f"{host!r} cannot be found: {reason}") from None
    family, *_, address = min(found, key=lambda each: each[0] != socket.AF_INET)
    return address, family


def _unusable(host: str, port: int, error: OSError) -> InvalidValue:
    reason = error.strerror or str(error)
    if error.errno in HINTS:
        return InvalidValue("port", f"{port} of {host} cannot be used: {reason}", hint=HINTS[error.errno])
    return InvalidValue("host", f"{host!r} is no address of this machine: {reason}")
