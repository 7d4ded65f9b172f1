"""The block tables of requests over the pools of all groups: what is found, shared, extended, published, given back.

A group with a window keeps, of each request, the blocks that a later position can still see; the cache of a long
request is constant there. A prefix is found only as far as *every* group has what the next position would see.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cutaway.scheduler.blocks import BlockPool
from cutaway.scheduler.plan import BlockCopy, GroupLimits, Miss, PrefixLookup, SchedulerLimits, TableChange
from cutaway.scheduler.prefix import root_digest
from cutaway.scheduler.request import ScheduledRequest, num_blocks_for


@dataclass(frozen=True, slots=True)
class Found:
    """Blocks to share before the first row is computed.

    Attributes:
        num_tokens: positions that they hold and that need not be computed.
        firsts: for each group, the table entry where ``blocks`` begin.
        blocks: for each group, what to share.
        lookup: the same for the glass.
    """

    num_tokens: int
    firsts: tuple[int, ...]
    blocks: tuple[list[int], ...]
    lookup: PrefixLookup


class Holder(Protocol):
    """Who holds blocks without being a request."""

    def blocks(self, group: int) -> list[int]:
        """The blocks of a group that it holds, each as often as it does."""
        ...


class BlockCache:
    """Owns the pools, and every change of a block table.

    Args:
        limits: sizes of the pools and windows.
    """

    def __init__(self, limits: SchedulerLimits) -> None:
        self.limits = limits
        self.block_size = limits.block_size
        self.pools = [BlockPool(group.num_blocks) for group in limits.groups]
        self._full = [index for index, group in enumerate(limits.groups) if group.window is None]
        self._windows = [(index, group.window) for index, group in enumerate(limits.groups) if group.window is not None]

    @property
    def num_blocks(self) -> int:
        """Blocks of all groups."""
        return sum(pool.num_blocks for pool in self.pools)

    @property
    def num_free_blocks(self) -> int:
        """Blocks of all groups that nobody counts on."""
        return sum(pool.num_free for pool in self.pools)

    def root(self, salt: str) -> bytes:
        """The digest that chains under a salt begin with."""
        return root_digest(self.limits.fingerprint, salt)

    def why_never(self, length: int) -> str | None:
        """Why a request of ``length`` positions cannot run even alone, or ``None``."""
        if length > self.limits.max_length:
            return f"{length:,} positions exceed {self.limits.max_length:,}"
        for group, pool in zip(self.limits.groups, self.pools, strict=True):
            needed = self._most_held(group, length)
            if needed > pool.num_blocks:
                return f"{needed:,} cache blocks are needed, the pool has {pool.num_blocks:,}"
        return None

    def find(self, request: ScheduledRequest) -> Found:
        """How much of a request's known tokens the cache has. The last one is never taken, so that there are logits."""
        return self._find(request, (request.num_known - 1) // self.block_size)

    def find_whole(self, request: ScheduledRequest) -> Found:
        """How much of a request's known tokens the cache has, the last one included."""
        return self._find(request, request.num_known // self.block_size)

    def find_fork(self, request: ScheduledRequest, parent: ScheduledRequest) -> Found | None:
        """The blocks of a parent with the same prompt, all of it but the last token; ``None`` if some are gone."""
        num_tokens = len(request.new.token_ids) - 1
        end = num_blocks_for(num_tokens, self.block_size)
        if (parent.new.token_ids, parent.new.salt) != (request.new.token_ids, request.new.salt):
            return None  # the id is somebody else's by now
        if request.generated or parent.num_computed < num_tokens:
            return None
        for index, window in self._windows:
            if parent.tables[index].num_dropped > self._first_needed(num_tokens, window):
                return None
        return Found(
            num_tokens,
            tuple(table.num_dropped for table in parent.tables),
            tuple(table.blocks[table.num_dropped : end] for table in parent.tables),
            PrefixLookup(request.request_id, num_tokens, Miss.NONE, fork_of=parent.request_id),
        )

    def why_wait(self, request: ScheduledRequest, found: Found) -> str | None:
        """Why a request cannot start with what was found, or ``None`` when there is room for all its known tokens."""
        for index, (group, pool) in enumerate(zip(self.limits.groups, self.pools, strict=True)):
            shared = found.blocks[index]
            needed = self._most_held(group, request.num_known) - len(shared)
            free = pool.num_free - sum(map(pool.is_free, shared))
            if max(needed, 1) > free:
                return f"no blocks: {max(needed, 1):,} needed, {free:,} free"
        return None

    def start(self, request: ScheduledRequest, found: Found) -> None:
        """Share what was found."""
        for table, pool, first, blocks in zip(request.tables, self.pools, found.firsts, found.blocks, strict=True):
            for block in blocks:
                pool.share(block)
            table.num_dropped = first
            table.blocks = [0] * first + blocks
        request.num_computed = request.next_start = found.num_tokens
        request.num_published = found.num_tokens // self.block_size

    def room(self, request: ScheduledRequest) -> int:
        """How many rows the request could compute now with the blocks it has and the free ones."""
        size, start = self.block_size, request.next_start
        rows = self.limits.max_step_tokens
        for table, pool in zip(request.tables, self.pools, strict=True):
            num_free = pool.num_free
            if self._is_to_be_copied(table.blocks, pool, start):
                if not num_free:
                    return 0
                num_free -= 1
            rows = min(rows, (len(table.blocks) + num_free) * size - start)
        return rows

    def extend(self, request: ScheduledRequest, count: int) -> tuple[tuple[TableChange, ...], list[BlockCopy]]:
        """Make room for ``count`` rows; a block that others count on, too, is copied before it is written."""
        start = request.next_start
        end = num_blocks_for(start + count, self.block_size)
        changes: list[TableChange] = []
        copies: list[BlockCopy] = []
        for index, (table, pool) in enumerate(zip(request.tables, self.pools, strict=True)):
            blocks, first = table.blocks, len(table.blocks)
            if self._is_to_be_copied(blocks, pool, start):
                first = start // self.block_size
                source = blocks[first]
                copies.append(BlockCopy(index, source, pool.alloc()))
                blocks[first] = copies[-1].target
                pool.free([source])
            while len(blocks) < end:
                blocks.append(pool.alloc())
            if first < len(blocks):
                changes.append(TableChange(index, first, tuple(blocks[first:])))
        request.room_end = end * self.block_size
        return tuple(changes), copies

    def whole_tables(self, request: ScheduledRequest) -> tuple[TableChange, ...]:
        """The tables of a request as the executor first sees them."""
        tables = enumerate(request.tables)
        return tuple(TableChange(index, table.num_dropped, tuple(table.held)) for index, table in tables)

    def landed(self, request: ScheduledRequest) -> None:
        """Let others find the blocks that are now full, and give back those that no later position sees."""
        num_full = request.num_computed // self.block_size
        if num_full > request.num_published:
            if self.limits.prefix_cache:
                self._publish(request, num_full)
            request.num_published = num_full
        for index, window in self._windows:
            table = request.tables[index]
            needed = self._first_needed(request.num_computed, window)
            if needed > table.num_dropped:
                self.pools[index].free(table.blocks[table.num_dropped : needed])
                table.num_dropped = needed
        # The next multiple of the block size: a block is full then, and only then can a window leave one.
        request.landing_end = (num_full + 1) * self.block_size

    def give_back(self, request: ScheduledRequest) -> None:
        """Free everything that a request holds."""
        for pool, blocks in zip(self.pools, request.start_anew(), strict=True):
            pool.free(blocks)

    def check(self, holders: Sequence[ScheduledRequest], pins: Holder) -> None:
        """Assert that every reference is one of a request or a pin, and that tables are as long as they have to be."""
        for group, pool in enumerate(self.pools):
            owned = [block for request in holders for block in request.tables[group].held]
            pool.check([*owned, *pins.blocks(group)])
        for request in holders:
            request.check()
            length = num_blocks_for(request.next_start, self.block_size)
            assert all(len(table.blocks) == length for table in request.tables)

    def _find(self, request: ScheduledRequest, most: int) -> Found:
        if not self.limits.prefix_cache:
            return self._found(request, 0, Miss.OFF)
        if not most:
            return self._found(request, 0, Miss.SHORT)
        num_full = self._num_leading(request, most)
        num_blocks = self._shorten_to_windows(request, num_full)
        if num_blocks == most:
            return self._found(request, num_blocks, Miss.NONE)
        if num_blocks < num_full and self._full:
            return self._found(request, num_blocks, Miss.WINDOW_GONE)
        miss, at = self._explain(request, num_blocks)
        return self._found(request, num_blocks, miss, at)

    def _most_held(self, group: GroupLimits, length: int) -> int:
        """Blocks that a request of ``length`` positions holds at once at least, if it computes a block at a time."""
        whole = num_blocks_for(length, self.block_size)
        return whole if group.window is None else min(whole, num_blocks_for(group.window, self.block_size) + 1)

    def _first_needed(self, num_computed: int, window: int) -> int:
        """The first table entry that the position ``num_computed`` or a later one sees."""
        return max(0, num_computed - window + 1) // self.block_size

    def _is_to_be_copied(self, blocks: list[int], pool: BlockPool, start: int) -> bool:
        index = start // self.block_size
        if index >= len(blocks):
            return False
        return pool.num_references(blocks[index]) > 1 or blocks[index] in pool.index

    def _block(self, request: ScheduledRequest, group: int, index: int) -> int | None:
        """The published block that holds entry ``index`` of the request's table."""
        digest = request.digest(index + 1, self.block_size)
        tokens = request.tokens(index * self.block_size, (index + 1) * self.block_size)
        return self.pools[group].index.find(digest, tokens)

    def _num_leading(self, request: ScheduledRequest, most: int) -> int:
        """How many blocks from the beginning on all groups without a window have."""
        for index in range(most if self._full else 0):
            if any(self._block(request, group, index) is None for group in self._full):
                return index
        return most

    def _shorten_to_windows(self, request: ScheduledRequest, num_blocks: int) -> int:
        """The longest prefix of at most ``num_blocks`` blocks whose last window every group has."""
        settled = 0
        while num_blocks and settled < len(self._windows):
            settled = 0
            for group, window in self._windows:
                first = self._first_needed(num_blocks * self.block_size, window)
                entries = range(num_blocks - 1, first - 1, -1)
                missing = next((index for index in entries if self._block(request, group, index) is None), None)
                if missing is None:
                    settled += 1
                else:
                    num_blocks = missing
        return num_blocks

    def _found(self, request: ScheduledRequest, num_blocks: int, miss: Miss, at: int | None = None) -> Found:
        num_tokens = num_blocks * self.block_size
        firsts = [0] * len(self.pools)
        for group, window in self._windows:
            firsts[group] = self._first_needed(num_tokens, window)
        blocks: list[list[int]] = []
        for group, first in enumerate(firsts):
            held = [self._block(request, group, index) for index in range(first, num_blocks)]
            blocks.append([block for block in held if block is not None])
            assert len(blocks[-1]) == len(held)
        lookup = PrefixLookup(request.request_id, num_tokens, miss, at)
        return Found(num_tokens, tuple(firsts), tuple(blocks), lookup)

    def _explain(self, request: ScheduledRequest, num_found: int) -> tuple[Miss, int | None]:
        """Why the block after the first ``num_found`` ones was not found, and where its tokens begin to differ."""
        index = self.pools[self._full[0] if self._full else 0].index
        if index.was_evicted(request.digest(num_found + 1, self.block_size)):
            return Miss.EVICTED, None
        start = num_found * self.block_size
        tokens = request.tokens(start, start + self.block_size)
        num_equal = index.most_alike(request.digest(num_found, self.block_size), tokens)
        if num_equal is not None and (num_found or num_equal):
            return Miss.DIFFERENT, start + num_equal
        if not num_found and index.knows_beginning(tokens):
            return Miss.OTHER_SALT, None
        return Miss.UNKNOWN, None

    def _publish(self, request: ScheduledRequest, num_full: int) -> None:
        for entry in range(request.num_published, num_full):
            digest = request.digest(entry + 1, self.block_size)
            tokens = request.tokens(entry * self.block_size, (entry + 1) * self.block_size)
            for table, pool in zip(request.tables, self.pools, strict=True):
                if entry >= table.num_dropped:
                    pool.index.publish(table.blocks[entry], entry, request.digests[entry], digest, tokens)
