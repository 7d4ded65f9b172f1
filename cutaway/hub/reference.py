"""The ``hf:ORG/REPO[:FILE]`` notation for models of the Hugging Face hub.

Owns what such a reference may be. Refuses to fetch; invariant: a parsed reference cannot lead out of its repository.
"""

import re
import urllib.parse
from dataclasses import dataclass

from cutaway.errors import UsageError

PREFIX = "hf:"
_PART = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
REPO_ID = re.compile(rf"{_PART}/{_PART}")
MAX_QUOTED_CHARS = 240  # the store makes the quoted reference a file name


@dataclass(frozen=True, slots=True)
class HubReference:
    """A parsed reference.

    Attributes:
        repo_id: ``ORG/REPO``.
        filename: path of a ``.gguf`` file in the repository, if one was named.
    """

    repo_id: str
    filename: str | None = None

    def __str__(self) -> str:
        return PREFIX + self.repo_id + (f":{self.filename}" if self.filename else "")


def parse_reference(text: str) -> HubReference:
    """Read ``hf:ORG/REPO[:FILE]``.

    Raises:
        UsageError: the text is not of that form, or the file could lead out of the repository.
    """
    if len(urllib.parse.quote(text, safe="")) > MAX_QUOTED_CHARS:
        raise UsageError(f"{text[:40]!r}… is longer than a reference can be")
    repo_id, separator, filename = text.removeprefix(PREFIX).partition(":")
    if not REPO_ID.fullmatch(repo_id) or ".." in repo_id or "--" in repo_id:
        raise UsageError(f"{text!r} does not name a repository", hint="the form is hf:ORG/REPO or hf:ORG/REPO:FILE")
    if not separator:
        return HubReference(repo_id)
    segments = filename.split("/")
    if any(segment in ("", ".", "..") for segment in segments) or not filename.isprintable() or "\\" in filename:
        raise UsageError(f"{filename!r} is not the path of a file inside a repository")
    if not filename.endswith(".gguf"):
        raise UsageError(f"{filename} is not a .gguf file", hint="leave the file out to take a safetensors model")
    return HubReference(repo_id, filename)
