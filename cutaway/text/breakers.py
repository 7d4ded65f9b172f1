"""Which tokens spell the texts that break a repetition, for DRY.

Owns the search in a vocabulary. Refuses to know what a repetition is. Safe to use from several threads.
Source: ``get_overlapping_token_sequences`` in ``src/llama-sampling.cpp`` of llama.cpp.
"""

from bisect import bisect_left
from collections.abc import Iterator
from functools import cached_property, lru_cache

from cutaway.text.tokenizer import Tokenizer
from cutaway.types import BreakerSequence, DryBreakers

MAX_REST_TOKENS = 20  # as llama.cpp; with a limit, looking for breakers never costs more than a pass over the tokens
NUM_REMEMBERED = 16


class BreakerFinder:
    """Finds breakers in the vocabulary of one model; those asked for last are remembered.

    Args:
        tokenizer: of the model.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.find = lru_cache(maxsize=NUM_REMEMBERED)(self._find)

    def _find(self, texts: tuple[str, ...]) -> DryBreakers:
        """The tokens that have one of ``texts`` in them, and the sequences of tokens that one reaches across."""
        found: set[int] = set()
        sequences: list[BreakerSequence] = []
        for text in texts:
            content = text.encode()
            holders = {token_id for token_id, spelling in enumerate(self._spellings) if content in spelling}
            found |= holders
            sequences += self._sequences(text, holders)
        return DryBreakers(frozenset(found), tuple(sequences))

    def _sequences(self, text: str, holders: set[int]) -> Iterator[BreakerSequence]:
        """The text as it is encoded alone, and all tokens that end with its beginning, with the rest encoded."""
        whole = self._encode(text)
        if len(whole) > 1:
            yield frozenset(whole[:1]), whole[1:]
        for cut in range(1, len(text)):
            heads = self._ending_with(text[:cut].encode())
            heads = heads if heads.isdisjoint(holders) else heads - holders
            rest = self._encode(text[cut:])[:MAX_REST_TOKENS]
            if heads and rest:
                yield heads, rest

    def _encode(self, text: str) -> tuple[int, ...]:
        """The tokens of a text that goes on with another: without a space that an encoding puts in front."""
        token_ids = self._tokenizer.encode(self._tokenizer.escape(text)).token_ids
        is_added = self._tokenizer.adds_space and token_ids and self._spellings[token_ids[0]] == b" "
        return token_ids[1:] if is_added else token_ids

    def _ending_with(self, content: bytes) -> frozenset[int]:
        first = content[::-1]
        behind = first[:-1] + bytes([first[-1] + 1])  # no byte of UTF-8 is the largest
        begin, end = (bisect_left(self._by_ending, (bound, -1)) for bound in (first, behind))
        return frozenset(token_id for _, token_id in self._by_ending[begin:end])

    @cached_property
    def _spellings(self) -> list[bytes]:
        return [self._tokenizer.token_bytes(token_id) for token_id in range(self._tokenizer.vocab_size)]

    @cached_property
    def _by_ending(self) -> list[tuple[bytes, int]]:
        """All spellings from their ends, in order, so that those with one ending stand together."""
        return sorted((spelling[::-1], token_id) for token_id, spelling in enumerate(self._spellings))
