"""Prefixes that somebody keeps warm on purpose, for a time.

A pin protects against eviction, not against the last request that could otherwise not go on: then it yields.
"""

from dataclasses import dataclass

from cutaway.scheduler.cache import BlockCache, Found
from cutaway.scheduler.plan import NewRequest
from cutaway.scheduler.request import ScheduledRequest
from cutaway.types import SamplingParams

# Pins leave the rest of each pool to requests, so that these can always run.
MAX_PINNED_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Pin:
    """A prefix that is not evicted before ``until_s``."""

    until_s: float
    found: Found


class Pins:
    """Holds blocks of pinned prefixes.

    Args:
        cache: the blocks.
    """

    def __init__(self, cache: BlockCache) -> None:
        self._cache = cache
        self._pins: dict[str, Pin] = {}

    def pin(self, pin_id: str, token_ids: tuple[int, ...], salt: str, until_s: float) -> int:
        """Hold what the cache has of a prompt; returns how many tokens those are, 0 if it is too much to hold.

        A pin of the same id is replaced.
        """
        probe = NewRequest(pin_id, token_ids, 1, (), SamplingParams(), salt=salt)
        request = ScheduledRequest(probe, self._cache.root(salt), len(self._cache.pools), 0, 0.0)
        self.release(pin_id)
        found = self._cache.find_whole(request)
        if not found.num_tokens:
            return 0
        for index, pool in enumerate(self._cache.pools):
            if self.num_blocks(index) + len(found.blocks[index]) > MAX_PINNED_SHARE * pool.num_blocks:
                return 0
        for pool, blocks in zip(self._cache.pools, found.blocks, strict=True):
            for block in blocks:
                pool.share(block)
        self._pins[pin_id] = Pin(until_s, found)
        return found.num_tokens

    def release(self, pin_id: str) -> None:
        """Let go of a prefix. Unknown ids hold nothing."""
        pin = self._pins.pop(pin_id, None)
        if pin is not None:
            for pool, blocks in zip(self._cache.pools, pin.found.blocks, strict=True):
                pool.free(blocks)

    def release_oldest(self) -> bool:
        """Let go of the pin that was set first; false when there is none."""
        for pin_id in self._pins:
            self.release(pin_id)
            return True
        return False

    def expire(self, now: float) -> None:
        """Let go of prefixes whose time is over."""
        for pin_id in [pin_id for pin_id, pin in self._pins.items() if pin.until_s <= now]:
            self.release(pin_id)

    def num_blocks(self, group: int) -> int:
        """Blocks of a group that pins hold."""
        return len(self.blocks(group))

    def blocks(self, group: int) -> list[int]:
        """The blocks of a group that pins hold, each as often as it is held."""
        return [block for pin in self._pins.values() for block in pin.found.blocks[group]]
