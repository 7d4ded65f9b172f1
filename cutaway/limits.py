"""The one table of limits for everything that a user, a client or a file can ask for.

Each entry point (command line, later each API) builds the same value objects of ``cutaway.types``, and those
check themselves against this table; so no way in can forget a limit.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from cutaway.errors import InvalidValue


@dataclass(frozen=True, slots=True)
class Limit:
    """An inclusive range of a number, or an open one below when ``above`` is set.

    Attributes:
        minimum: smallest value.
        maximum: largest value.
        above: the minimum itself is not allowed.
        integer: only whole numbers are allowed.
        hint: what a user should know who ran into it.
    """

    minimum: float
    maximum: float
    above: bool = False
    integer: bool = False
    hint: str = ""

    def __str__(self) -> str:
        kind = "a whole number " if self.integer else "a number "
        lower = f"above {_plain(self.minimum)} and" if self.above else f"from {_plain(self.minimum)}"
        upper = f"up to {_plain(self.maximum)}" if self.above else f"to {_plain(self.maximum)}"
        return f"{kind}{lower} {upper}"


def _plain(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


MAX_SEED = 2**63 - 1
MAX_TOKENS = 2**31 - 1
MAX_STOP_STRINGS = 16
MAX_STOP_CHARS = 256
MAX_LOGPROBS = 20
MAX_SALT_CHARS = 256
MAX_MESSAGES = 10_000
MAX_PROMPT_CHARS = 16_000_000
MAX_PROMPT_TOKENS = 1_000_000
MAX_BODY_BYTES = 32 << 20
MAX_BODY_VALUES = 200_000
MAX_BODIES_BYTES = 256 << 20  # of all requests under way
BODY_SECONDS = 60.0  # for a whole body; the longest one needs half a megabyte a second
HEAD_SECONDS = 20.0  # for the headers
MAX_HEAD_BYTES = 16 << 10  # of the headers

LIMITS: Mapping[str, Limit] = {
    "temperature": Limit(0.0, 2.0, hint="0 always takes the most likely token; 1 is the model's own distribution"),
    "top_p": Limit(0.0, 1.0, above=True, hint="1 turns it off"),
    "top_k": Limit(0, MAX_TOKENS, integer=True, hint="0 turns it off"),
    "min_p": Limit(0.0, 1.0, hint="0 turns it off"),
    "repetition_penalty": Limit(0.0, 10.0, above=True, hint="1 turns it off"),
    "presence_penalty": Limit(-2.0, 2.0, hint="0 turns it off"),
    "frequency_penalty": Limit(-2.0, 2.0, hint="0 turns it off"),
    "seed": Limit(-(2**63), MAX_SEED, integer=True),
    "max_tokens": Limit(
        1, MAX_TOKENS, integer=True, hint="leave it out to generate until the model ends or the context is full"
    ),
    "logprobs": Limit(0, MAX_LOGPROBS, integer=True),
    "num_candidates": Limit(0, MAX_LOGPROBS, integer=True),
    "threads": Limit(1, 1024, integer=True),
    "context": Limit(1, MAX_TOKENS, integer=True),
    "block_size": Limit(1, 4096, integer=True),
    "kv_memory": Limit(1, 2**50, integer=True),
    "port": Limit(0, 65_535, integer=True, hint="0 takes one that is free"),
    "priority": Limit(-1000, 1000, integer=True, hint="the smaller goes first"),
    "n": Limit(1, 128, integer=True, hint="each is an answer of its own"),
    "pin_seconds": Limit(0, 86_400, above=True, hint="pin it again before the time is over to keep it longer"),
    "input_len": Limit(1, MAX_PROMPT_TOKENS, integer=True),
    "output_len": Limit(1, MAX_PROMPT_TOKENS, integer=True),
    "batch": Limit(1, 512, integer=True),
    "rounds": Limit(1, 1000, integer=True),
    "warmup": Limit(0, 1000, integer=True, hint="they are not counted"),
    "num_prompts": Limit(1, 1_000_000, integer=True),
    "request_rate": Limit(0, 1_000_000, above=True, hint="leave it out to send all at once"),
    "burstiness": Limit(0.001, 1_000_000, hint="1 is a Poisson process, less comes in bursts, more is more even"),
    "max_concurrency": Limit(1, 100_000, integer=True),
    "timeout": Limit(0, 86_400, above=True),
    "goodput": Limit(0, 1e9, above=True),
    "metric_percentiles": Limit(0, 100),
}


def check_number(name: str, value: object) -> None:
    """Raises ``InvalidValue`` unless ``value`` is a finite number inside ``LIMITS[name]``."""
    limit = LIMITS[name]
    is_number = isinstance(value, int) if limit.integer else isinstance(value, int | float)
    if isinstance(value, bool) or not is_number:
        raise InvalidValue(name, f"{value!r} is not {limit}", hint=limit.hint)
    assert isinstance(value, int | float)
    is_enough = value > limit.minimum if limit.above else value >= limit.minimum
    if not (is_enough and value <= limit.maximum):  # as it is for what is no number
        raise InvalidValue(name, f"{value!r} is outside its limits, {limit}", hint=limit.hint)


def check_salt(salt: str) -> None:
    """Raises ``InvalidValue`` unless ``salt`` is a bounded text."""
    if len(salt) > MAX_SALT_CHARS:
        raise InvalidValue("salt", f"{len(salt):,} characters are more than the limit of {MAX_SALT_CHARS}")
    try:
        salt.encode()
    except UnicodeEncodeError as error:
        raise InvalidValue("salt", f"character {error.start} is half of a surrogate pair, which is no text") from None


def check_stop_strings(stop: tuple[str, ...]) -> None:
    """Raises ``InvalidValue`` unless ``stop`` holds a bounded number of bounded, non-empty strings."""
    if len(stop) > MAX_STOP_STRINGS:
        raise InvalidValue("stop", f"{len(stop)} stop strings are more than the limit of {MAX_STOP_STRINGS}")
    for text in stop:
        if not isinstance(text, str):
            raise InvalidValue("stop", f"{text!r} is not a string")
        if not 1 <= len(text) <= MAX_STOP_CHARS:
            raise InvalidValue(
                "stop",
                f"a stop string of {len(text)} characters is outside its limits, 1 to {MAX_STOP_CHARS} characters",
            )
