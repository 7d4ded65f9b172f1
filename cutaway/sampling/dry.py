"""DRY: a penalty for tokens that would go on with a repetition.

Owns how much of the end of a request's tokens stands elsewhere in them, and what that does to logits. Refuses to know
texts, probabilities and other requests. Invariant: what is known after a token is the same however the tokens came,
one by one or as a prompt; taking one in costs a pass over the tokens and no more.

Source: p-e-w, "DRY: A modern repetition penalty that reliably prevents looping",
https://github.com/oobabooga/text-generation-webui/pull/5677, as ``llama_sampler_dry_apply`` of llama.cpp
(``src/llama-sampling.cpp``) defines it.
"""

import math
from collections.abc import Sequence

import numpy as np

from cutaway.sampling.order import Logits, TokenIds
from cutaway.types import BreakerSequence, DryBreakers, SamplingParams

_LARGEST = float(np.finfo(np.float32).max)
_SMALLEST_BASE = 1.000001  # nearer to 1 a power cannot leave the range of float32


class Repetition:
    """What the end of a request's tokens repeats.

    Args:
        token_ids: of the prompt, at least one.
        breakers: what a repetition does not reach across.
    """

    def __init__(self, token_ids: Sequence[int], breakers: DryBreakers) -> None:
        self._token_ids: TokenIds = np.array(token_ids, dtype=np.int64)
        self._lengths = repeat_lengths(token_ids)
        self._single_ids = breakers.single_ids
        self._sequences: dict[int, list[BreakerSequence]] = {}  # by their last token
        for heads, rest in breakers.sequences:
            self._sequences.setdefault(rest[-1], []).append((heads, rest))
        self._break = (-1, -1)  # first and last position of the breaker that begins last; the longest of those
        for position, token_id in enumerate(token_ids):
            self._find_break(position, token_id)

    def add(self, token_id: int) -> None:
        """Take in a chosen token."""
        going_on = np.concatenate(([1], self._lengths + 1))  # [tokens so far]
        self._lengths = np.where(self._token_ids == token_id, going_on, 0)
        self._token_ids = np.append(self._token_ids, token_id)
        self._find_break(self._token_ids.size - 1, token_id)

    def longest(self, params: SamplingParams) -> dict[int, int]:
        """The tokens that would go on with a repetition, and the length of the longest that each would.

        A repetition is as long as the tokens that the request ends with and that stand before that token elsewhere,
        both as far as ``dry_penalty_last_n`` looks back and without a breaker in between.
        """
        size, shortest = self._token_ids.size, params.dry_allowed_length
        last_n = size if params.dry_penalty_last_n < 0 else min(params.dry_penalty_last_n, size)
        begin = size - last_n
        most = size - 1 - self._break[1] if self._break[0] >= begin else last_n
        if last_n <= shortest or most < shortest:
            return {}
        seen = np.arange(1, last_n)  # tokens of the window up to each position, but the last
        lengths = np.minimum(np.minimum(self._lengths[begin:], seen), most)
        places = np.flatnonzero(lengths >= shortest)
        longest: dict[int, int] = {}
        for token_id, length in zip(
            self._token_ids[begin + 1 + places].tolist(), lengths[places].tolist(), strict=True
        ):
            if token_id not in self._single_ids:
                longest[token_id] = max(length, longest.get(token_id, 0))
        return longest

    def _find_break(self, position: int, token_id: int) -> None:
        """Note a breaker that is complete with the token at a position."""
        if token_id in self._single_ids:
            self._break = (position, position)
            return
        for heads, rest in self._sequences.get(token_id, ()):
            start = position - len(rest)
            if start < max(self._break[0], 0):
                continue
            head, *others = self._token_ids[start : position + 1].tolist()
            if head in heads and others == list(rest):
                self._break = (start, position)


def has_dry(params: SamplingParams) -> bool:
    """Whether DRY is on."""
    return params.dry_multiplier > 0 and params.dry_penalty_last_n != 0


def penalize_repetition(logits: Logits, params: SamplingParams, repetition: Repetition) -> Logits:
    """A copy of ``logits``, float32 [vocab], with the penalty of DRY.

    A token that would go on with a repetition of ``length`` loses
    ``dry_multiplier * dry_base ** (length - dry_allowed_length)``. What would leave the range of float32 stays at its
    end, so that no penalty bans a token.
    """
    longest = repetition.longest(params)
    penalized = logits.copy()
    if not longest:
        return penalized
    token_ids = list(longest)
    exponents = np.array(list(longest.values()), dtype=np.float64) - params.dry_allowed_length
    if params.dry_base > _SMALLEST_BASE:
        exponents = np.minimum(exponents, math.floor(math.log(_LARGEST) / math.log(params.dry_base)))
    before = logits[token_ids].astype(np.float64)  # [repeated]
    after = np.maximum(before - params.dry_multiplier * params.dry_base**exponents, -_LARGEST)
    penalized[token_ids] = np.where(before > -np.inf, after, before)
    return penalized


def repeat_lengths(token_ids: Sequence[int]) -> TokenIds:
    """For each token but the last, how many up to it are the same as up to the last one, [tokens - 1].

    The Z-algorithm, from the end. Source: Gusfield, "Algorithms on Strings, Trees, and Sequences", 1997, section 1.4.
    """
    size = len(token_ids)
    backwards = token_ids[::-1]
    lengths = [0] * size  # of what is the same from each place of ``backwards`` on as from its beginning
    left = right = 0  # the place whose sameness reaches farthest, and where that ends
    for place in range(1, size):
        length = min(lengths[place - left], right - place) if place < right else 0
        while place + length < size and backwards[length] == backwards[place + length]:
            length += 1
        if place + length > right:
            left, right = place, place + length
        lengths[place] = length
    return np.array(lengths[:0:-1], dtype=np.int64)
