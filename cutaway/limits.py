"""The one table of limits for everything that a user, a client or a file can ask for.

Each entry point (the command line, each API) builds the same value objects of ``cutaway.types``, and those
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
MAX_STOP_TOKEN_IDS = 128
MAX_LOGIT_BIASES = 1024
MAX_BREAKERS = 16
MAX_BREAKER_CHARS = 40
MAX_LOGPROBS = 20
MAX_SALT_CHARS = 256
MAX_MESSAGES = 10_000
MAX_PROMPT_CHARS = 16_000_000
MAX_PROMPT_TOKENS = 1_000_000
MAX_PROMPTS = 1024
MAX_ANSWERS = 1024
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
    "repetition_penalty": Limit(0.01, 10.0, hint="1 turns it off"),
    "presence_penalty": Limit(-2.0, 2.0, hint="0 turns it off"),
    "frequency_penalty": Limit(-2.0, 2.0, hint="0 turns it off"),
    "logit_bias": Limit(-100.0, 100.0, hint="it is added to the token's score; -100 bans it, in effect"),
    "typical_p": Limit(0.0, 1.0, above=True, hint="1 turns it off"),
    "top_n_sigma": Limit(-1.0, 100.0, hint="0 and less turn it off"),
    "xtc_probability": Limit(0.0, 1.0, hint="0 turns it off"),
    "xtc_threshold": Limit(0.0, 0.5, hint="no two tokens can reach more than a half"),
    "dry_multiplier": Limit(0.0, 100.0, hint="0 turns DRY off"),
    "dry_base": Limit(1.0, 100.0),
    "dry_allowed_length": Limit(1, MAX_TOKENS, integer=True),
    "dry_penalty_last_n": Limit(-1, MAX_TOKENS, integer=True, hint="-1 looks at all tokens, 0 turns DRY off"),
    "token_id": Limit(0, MAX_TOKENS, integer=True),
    "seed": Limit(-(2**63), MAX_SEED, integer=True),
    "max_tokens": Limit(
        1, MAX_TOKENS, integer=True, hint="leave it out to generate until the model ends or the context is full"
    ),
    "unit_temperature": Limit(0.0, 1.0, hint="0 always takes the most likely token; 1 is the model's own distribution"),
    "required_max_tokens": Limit(1, MAX_TOKENS, integer=True, hint="more than the context has room for is lowered"),
    "min_tokens": Limit(0, MAX_TOKENS, integer=True, hint="0 lets an answer end at once"),
    "logprobs": Limit(0, MAX_LOGPROBS, integer=True),
    "completion_logprobs": Limit(0, 5, integer=True),
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


def check_logit_bias(biases: tuple[tuple[int, float], ...]) -> None:
    """Raises ``InvalidValue`` unless ``biases`` are a bounded number of (token id, bias) pairs, by rising id."""
    if len(biases) > MAX_LOGIT_BIASES:
        raise InvalidValue("logit_bias", f"{len(biases):,} tokens are more than the limit of {MAX_LOGIT_BIASES:,}")
    before = -1
    for token_id, bias in biases:
        _check_token_id("logit_bias", token_id)
        if token_id <= before:
            raise InvalidValue("logit_bias", f"token {token_id} is there twice, or not in rising order")
        before = token_id
        try:
            check_number("logit_bias", bias)
        except InvalidValue as error:
            raise error.renamed("logit_bias", f"token {token_id}: ") from None


def check_stop_token_ids(token_ids: tuple[int, ...]) -> None:
    """Raises ``InvalidValue`` unless ``token_ids`` are a bounded number of token ids."""
    if len(token_ids) > MAX_STOP_TOKEN_IDS:
        raise InvalidValue("stop_token_ids", f"{len(token_ids):,} ids are more than the limit of {MAX_STOP_TOKEN_IDS}")
    for token_id in token_ids:
        _check_token_id("stop_token_ids", token_id)


def check_breakers(breakers: tuple[str, ...]) -> None:
    """Raises ``InvalidValue`` unless ``breakers`` are a bounded number of bounded, non-empty texts."""
    name = "dry_sequence_breakers"
    if len(breakers) > MAX_BREAKERS:
        raise InvalidValue(name, f"{len(breakers):,} texts are more than the limit of {MAX_BREAKERS}")
    for text in breakers:
        if not isinstance(text, str):
            raise InvalidValue(name, f"{text!r} is not a text")
        if not 1 <= len(text) <= MAX_BREAKER_CHARS:
            limits = f"1 to {MAX_BREAKER_CHARS} characters"
            raise InvalidValue(name, f"a text of {len(text):,} characters is outside its limits, {limits}")
        _check_text(name, text)


def _check_token_id(name: str, token_id: object) -> None:
    try:
        check_number("token_id", token_id)
    except InvalidValue as error:
        raise error.renamed(name) from None


def check_salt(salt: str) -> None:
    """Raises ``InvalidValue`` unless ``salt`` is a bounded text."""
    if len(salt) > MAX_SALT_CHARS:
        raise InvalidValue("salt", f"{len(salt):,} characters are more than the limit of {MAX_SALT_CHARS}")
    _check_text("salt", salt)


def _check_text(name: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidValue(name, f"character {error.start} is half of a surrogate pair, which is no text") from None


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
