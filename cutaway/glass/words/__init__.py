"""The glass's words, one file a language."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from cutaway.errors import InvalidValue

LANGUAGES = ("en", "ko")


@dataclass(frozen=True, slots=True)
class Words:
    """A language's words.

    Attributes:
        titles, sentences: of each stage, by the stage's name.
        labels: everything else, by key; texts with {holes} are filled by ``str.format``.
        misses: why no more of a prompt was found in the cache, by ``Miss``.
        times: the rows of the time ledger.
    """

    titles: Mapping[str, str]
    sentences: Mapping[str, str]
    labels: Mapping[str, str]
    misses: Mapping[str, str]
    times: Mapping[str, str]

    def label(self, key: str, **holes: object) -> str:
        """A label, its holes filled."""
        return self.labels[key].format(**holes)


def load_words(language: str) -> Words:
    """Read a language's words.

    Raises:
        InvalidValue: there is no such language.
    """
    if language not in LANGUAGES:
        raise InvalidValue("lang", f"{language!r} is none of {', '.join(LANGUAGES)}")
    content = tomllib.loads(files(__name__).joinpath(f"{language}.toml").read_text("utf-8"))
    stages = content["stages"]
    return Words(
        titles={name: stage["title"] for name, stage in stages.items()},
        sentences={name: stage["sentence"] for name, stage in stages.items()},
        labels=content["labels"],
        misses=content["misses"],
        times=content["times"],
    )
