"""HTTP for downloads: a bounded JSON document, or a stream of bytes, or an error that says what to try.

Owns the connection and the translation of everything that can go wrong with it. Refuses to know models and files.
Invariants: only http and https are spoken, also after a redirect; a credential in a URL goes to its own host and
nowhere else, and never into a message; every wait ends.

The standard library does it because it is enough: it streams, it honours HTTPS_PROXY, NO_PROXY and SSL_CERT_FILE,
and the client that huggingface_hub brings changed its name from one major version to the next.
"""

import base64
import http.client
import json
import socket
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from cutaway import __version__
from cutaway.errors import InvalidValue, NetworkError

TIMEOUT_SECONDS = 30.0
CHUNK_BYTES = 1 << 18

_HINT = "check the network; HTTPS_PROXY names a proxy, CUTAWAY_INDEX_URL another package index"


def fetch_json(url: str, accept: str, max_bytes: int) -> object:
    """The JSON document at ``url``.

    Raises:
        NetworkError: the host cannot be reached, refuses, or answers with something else than bounded JSON.
        InvalidValue: the URL is not one of http or https.
    """
    with _open(url, accept) as response:
        body = b"".join(_chunks(response, url, max_bytes + 1))
    if len(body) > max_bytes:
        raise NetworkError(f"{place(url)} sent a document of more than {max_bytes:,} bytes", hint=_HINT)
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise NetworkError(
            f"{place(url)} did not answer with JSON, which PEP 691 asks of a package index",
            hint="the index must be able to speak application/vnd.pypi.simple.v1+json",
        ) from None


def stream(url: str, max_bytes: int) -> Iterator[bytes]:
    """Yield what ``url`` delivers in chunks, at most ``max_bytes`` in all. An answer that is too short is an error.

    Raises:
        NetworkError: the host cannot be reached, refuses, or the transfer is cut or stalls.
        InvalidValue: the URL is not one of http or https.
    """
    with _open(url, "*/*") as response:
        num_done = 0
        for chunk in _chunks(response, url, max_bytes):
            num_done += len(chunk)
            yield chunk
        if num_done < max_bytes:
            raise NetworkError(
                f"the transfer from {place(url)} was cut after {num_done:,} of {max_bytes:,} bytes",
                hint="try again; nothing half-written was kept",
            )


def join(base: str, url: str) -> str:
    """The address that ``url``, which may be relative, means in a document at ``base``.

    Raises:
        InvalidValue: it is no address at all.
    """
    try:
        return urllib.parse.urljoin(base, url)
    except ValueError as error:
        raise InvalidValue("url", f"{place(base)} gives an address that is none: {error}") from None


def place(url: str) -> str:
    """Host and port of a URL, for messages: no path, no credentials."""
    try:
        parts = urllib.parse.urlsplit(url)
        return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname or repr(url)
    except ValueError:
        return repr(url)


@contextmanager
def _open(url: str, accept: str) -> Iterator[http.client.HTTPResponse]:
    request = _request(url, accept)
    try:
        response = _opener().open(request, timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        raise NetworkError(
            f"{place(url)} answered {error.code} {error.reason} for {urllib.parse.urlsplit(url).path}", hint=_HINT
        ) from None
    except urllib.error.URLError as error:
        raise _failure(url, error.reason) from None
    except (OSError, http.client.HTTPException) as error:
        raise _failure(url, error) from None
    except ValueError as error:  # such as a port that is not a number
        raise InvalidValue("url", f"{place(url)}: {error}", hint=_HINT) from None
    with response:
        yield response


def _opener() -> urllib.request.OpenerDirector:
    """An opener for http and https alone; the default one would follow a redirect to ftp."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),  # verifies certificates
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener


def _request(url: str, accept: str) -> urllib.request.Request:
    try:
        parts = urllib.parse.urlsplit(url)
        host, _ = parts.hostname, parts.port  # reading the port checks it
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https"):
        raise InvalidValue("url", f"{place(url)} is not an http or https address", hint="see CUTAWAY_INDEX_URL")
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2])
    headers = {"Accept": accept, "Accept-Encoding": "identity", "User-Agent": f"cutaway/{__version__}"}
    request = urllib.request.Request(bare.geturl(), headers=headers)  # noqa: S310  the scheme is checked above
    if parts.username is not None:
        credential = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        token = base64.b64encode(credential.encode()).decode()
        # Ordinary headers travel along with a redirect to another host; this one does not.
        request.add_unredirected_header("Authorization", f"Basic {token}")
    return request


def _chunks(response: http.client.HTTPResponse, url: str, max_bytes: int) -> Iterator[bytes]:
    num_left = max_bytes
    while num_left:
        try:
            chunk = response.read(min(CHUNK_BYTES, num_left))
        except (OSError, http.client.HTTPException) as error:
            raise _failure(url, error) from None
        if not chunk:
            return
        num_left -= len(chunk)
        yield chunk


def _failure(url: str, cause: BaseException | str) -> NetworkError:
    """What a failed connection means to a user."""
    where = place(url)
    match cause:
        case socket.gaierror():
            return NetworkError(f"the name of {where} cannot be looked up: {cause.strerror}", hint=_HINT)
        case ConnectionRefusedError():
            return NetworkError(f"{where} refused the connection", hint=_HINT)
        case TimeoutError():
            return NetworkError(f"{where} did not answer within {TIMEOUT_SECONDS:g} seconds", hint=_HINT)
        case ssl.SSLCertVerificationError():
            return NetworkError(
                f"the certificate of {where} cannot be verified: {cause.verify_message}",
                hint="SSL_CERT_FILE names a file of the certificates that you trust",
            )
        case ConnectionError() | http.client.HTTPException():
            return NetworkError(f"{where} broke the connection ({str(cause) or type(cause).__name__})", hint=_HINT)
        case _:
            return NetworkError(f"{where} cannot be reached: {cause}", hint=_HINT)
