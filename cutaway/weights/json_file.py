"""Reads JSON that came from somewhere else: bounded, without duplicate keys, with valid text only.

Owns nothing but the checks. Standard library only. Invariant: what it returns can be printed and encoded.
"""

import json
from pathlib import Path

from cutaway.errors import CorruptFile
from cutaway.weights.tensor_file import FETCH_AGAIN, map_file

MAX_JSON_BYTES = 64 * 2**20


def read_json(path: Path) -> tuple[dict[str, object], bytes]:
    """The JSON object in the file at ``path``, and its bytes. Errors as ``parse_json`` and ``map_file``."""
    with map_file(path) as mapped:
        if len(mapped) > MAX_JSON_BYTES:
            raise CorruptFile(
                f"{path}: {len(mapped):,} bytes are more than the limit of {MAX_JSON_BYTES:,}", hint=FETCH_AGAIN
            )
        data = bytes(mapped)
    return parse_json(data, path), data


def parse_json(data: bytes, path: Path) -> dict[str, object]:
    """The JSON object that ``data`` is.

    Raises:
        CorruptFile: it is not UTF-8, not JSON, not an object, nested too deeply, or has a key twice.
    """
    try:
        value = json.loads(data.decode(), object_pairs_hook=_unique)
        # Lone surrogates are legal JSON but no text; they would fail much later, when they are printed.
        json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise CorruptFile(f"{path}: the JSON is nested too deeply", hint=FETCH_AGAIN) from None
    except ValueError as error:
        raise CorruptFile(f"{path}: not valid JSON: {error}", hint=FETCH_AGAIN) from None
    if not isinstance(value, dict):
        raise CorruptFile(f"{path}: a JSON object is expected, but this is a {type(value).__name__}", hint=FETCH_AGAIN)
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key {key!r} is there twice")
            seen.add(key)
    return unique
