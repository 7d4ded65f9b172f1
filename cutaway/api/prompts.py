"""Prompts that are no conversations, as clients send them: a text, tokens, or a list of either.

Owns what may stand under ``prompt`` and ``tokens``. Refuses to know vocabularies: which ids there are is checked where
the prompt is made. Invariant: an error names the prompt by its place, as ``prompt[2]``, unless it is the only one.
Source: https://platform.openai.com/docs/api-reference/completions/create.
"""

from cutaway.api.values import read_text, refuse_kind, shown
from cutaway.errors import InvalidValue
from cutaway.limits import MAX_PROMPT_TOKENS, MAX_PROMPTS
from cutaway.types import TextPrompt, TokenPrompt

KINDS = "a text, a list of texts, a list of token ids, or a list of such lists"


def read_prompts(name: str, value: object) -> tuple[TextPrompt | TokenPrompt, ...]:
    """One prompt or several of one kind."""
    if isinstance(value, str):
        return (TextPrompt(read_text(name, value), origin=name),)
    if not isinstance(value, list) or not value:
        raise refuse_kind(name, value, KINDS)
    first = value[0]
    if isinstance(first, int) and not isinstance(first, bool):
        return (TokenPrompt(read_token_ids(name, value), name),)
    if not isinstance(first, str | list):
        raise refuse_kind(f"{name}[0]", first, "a text, a token id, or a list of token ids")
    if len(value) > MAX_PROMPTS:
        raise InvalidValue(name, f"{len(value):,} prompts are more than the limit of {MAX_PROMPTS:,}")
    places = [f"{name}[{index}]" for index in range(len(value))]
    if isinstance(first, str):
        texts = [read_text(place, text) for place, text in zip(places, value, strict=True)]
        return tuple(TextPrompt(text, origin=place) for place, text in zip(places, texts, strict=True))
    token_ids = [read_token_ids(place, ids) for place, ids in zip(places, value, strict=True)]
    return tuple(TokenPrompt(ids, place) for place, ids in zip(places, token_ids, strict=True))


def read_token_ids(name: str, value: object) -> tuple[int, ...]:
    """A list of numbers that could be the ids of tokens."""
    if not isinstance(value, list):
        raise refuse_kind(name, value, "a list of token ids")
    if not 1 <= len(value) <= MAX_PROMPT_TOKENS:
        raise InvalidValue(name, f"{len(value):,} tokens are outside the limits, 1 to {MAX_PROMPT_TOKENS:,}")
    for index, token_id in enumerate(value):
        if isinstance(token_id, bool) or not isinstance(token_id, int) or token_id < 0:
            raise InvalidValue(f"{name}[{index}]", f"{shown(token_id)} is not the id of a token, a whole number from 0")
    return tuple(value)
