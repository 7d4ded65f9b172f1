"""Text that came from elsewhere, made safe to print.

A model's answer, its metadata, a file name or a server's reply may hold escape sequences, which would move the cursor,
rename the window or hide text. Standard library only.
"""

import json
import unicodedata

_KEPT = frozenset("\n\t")
# Category Cc is what terminals obey; the bidirectional controls reorder what stands beside them.
_BIDIRECTIONAL = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def printable(text: str) -> str:
    """``text`` with each control character but newline and tab spelled out: ESC becomes a backslash, ``x1b``."""
    if text.isprintable():
        return text
    return "".join(_spell(character) if _is_control(character) else character for character in text)


def quote(content: str | bytes) -> str:
    """A text between quotes, in one line; bytes that form no character are spelled out in hexadecimal."""
    text = content if isinstance(content, str) else content.decode("utf-8", "backslashreplace")
    return json.dumps(text, ensure_ascii=False).replace("\\\\x", "\\x")


def _is_control(character: str) -> bool:
    return character not in _KEPT and (unicodedata.category(character) == "Cc" or character in _BIDIRECTIONAL)


def _spell(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
