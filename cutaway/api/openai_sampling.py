"""Fields that say how tokens are chosen and what ends an answer, the same on every route of the vendor API.

Owns their tables. Refuses to know the other fields. Invariant: ``SAMPLING_FIELDS`` are the fields of
``SamplingParams``, ``ENDING_FIELDS`` those of ``GenerationRequest`` with the same names.
Source: https://platform.openai.com/docs/api-reference/chat/create for what OpenAI has; ``top_k``, ``min_p``,
``repetition_penalty``, ``stop_token_ids``, ``min_tokens`` and ``ignore_eos`` have the names and the meaning of vLLM
(``vllm/sampling_params.py``); the others those of llama.cpp's server (``tools/server/README.md``).
"""

from collections.abc import Mapping

from cutaway.api.values import (
    MAX_SHOWN_CHARS,
    Number,
    Reader,
    read_flag,
    read_list,
    read_object,
    read_stop,
    read_text,
    shown,
)
from cutaway.errors import InvalidValue
from cutaway.limits import LIMITS, MAX_LOGIT_BIASES, MAX_STOP_TOKEN_IDS, check_breakers, check_logit_bias
from cutaway.types import LISTED_SETTINGS, SamplingParams


def read_logit_bias(name: str, value: object) -> tuple[tuple[int, float], ...]:
    """An object whose names are token ids, as (token id, bias) pairs by rising id."""
    entries = read_object(name, value)
    if len(entries) > MAX_LOGIT_BIASES:
        raise InvalidValue(name, f"{len(entries):,} tokens are more than the limit of {MAX_LOGIT_BIASES:,}")
    biases = tuple(sorted((_read_token_id(name, key), _read_bias(name, key, bias)) for key, bias in entries.items()))
    check_logit_bias(biases)
    return biases


def _read_token_id(name: str, text: str) -> int:
    limit = LIMITS["token_id"]
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(limit.maximum))
    if not is_number or str(int(text)) != text:
        raise InvalidValue(name, f"{shown(text)} is no token id, {limit}")
    return int(text)


def _read_bias(name: str, token_id: str, value: object) -> float:
    try:
        return Number("logit_bias")(name, value)
    except InvalidValue as error:
        raise error.renamed(name, f"token {token_id[:MAX_SHOWN_CHARS]}: ") from None


def read_stop_token_ids(name: str, value: object) -> tuple[int, ...]:
    """A list of token ids."""
    entries = read_list(name, value)
    if len(entries) > MAX_STOP_TOKEN_IDS:
        raise InvalidValue(name, f"{len(entries):,} ids are more than the limit of {MAX_STOP_TOKEN_IDS}")
    return tuple(int(Number("token_id")(name, token_id)) for token_id in entries)


def read_breakers(name: str, value: object) -> tuple[str, ...]:
    """A list of texts that break a repetition."""
    breakers = tuple(read_text(name, text) for text in read_list(name, value))
    check_breakers(breakers)
    return breakers


SAMPLING_FIELDS: Mapping[str, Reader] = {
    **{name: Number(name) for name in SamplingParams.__slots__ if name not in LISTED_SETTINGS},
    "logit_bias": read_logit_bias,
    "dry_sequence_breakers": read_breakers,
}
ENDING_FIELDS: Mapping[str, Reader] = {
    "stop": read_stop,
    "stop_token_ids": read_stop_token_ids,
    "min_tokens": Number("min_tokens"),
    "ignore_eos": read_flag,
}
