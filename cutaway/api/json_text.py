"""JSON values, and how they become bytes."""

import json
from typing import Any

# An object as Python has it.
Json = dict[str, Any]
# Readers that split lines as Python's ``str.splitlines`` does would take these for the ends of lines.
_LINE_ENDS = {"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def json_bytes(value: object) -> bytes:
    """A value in UTF-8 on one line, whoever reads it; half of a surrogate pair is escaped."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for char, escaped in _LINE_ENDS.items():
        text = text.replace(char, escaped)
    return text.encode("utf-8", "backslashreplace")
