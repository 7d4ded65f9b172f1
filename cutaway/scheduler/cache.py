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
    """Blocks to start with before the first row is computed.

    Attributes:
        num_tokens: positions that they hold and that need not be computed.
        firsts: for each group, the table entry where ``blocks`` begin.
        blocks: for each group, what to share.
        copied: for each group, a block to copy, because the request will write into the rest of it; or nothing.
        fork_of: the request whose blocks they are, if it is one's.
    """

    num_tokens: int
    firsts: tuple[int, ...]
    blocks: tuple[list[int], ...]
    copied: tuple[int, ...] = ()
    fork_of: str | None = None


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
        if (parent.new.token_ids, parent.new.salt) != (request.new.token_ids, request.new.salt):
            return None  # the id is somebody else's by now
        num_tokens = len(request.new.token_ids) - 1
        if request.generated or parent.num_computed < num_tokens:
            return None
        for index, window in self._windows:
            if parent.tables[index].num_dropped > self._first_needed(num_tokens, window):
                return None
        num_whole, rest = divmod(num_tokens, self.block_size)
        return Found(
            num_tokens,
            tuple(table.num_dropped for table in parent.tables),
            tuple(table.blocks[table.num_dropped : num_whole] for table in parent.tables),
            tuple(table.blocks[num_whole] for table in parent.tables) if rest else (),
            parent.request_id,
        )

    def explain(self, request: ScheduledRequest, found: Found) -> PrefixLookup:
        """What was found and why not more; to be asked before the request starts."""
        if found.fork_of is not None:
            return PrefixLookup(request.request_id, found.num_tokens, Miss.NONE, fork_of=found.fork_of)
        miss, at = self._why_no_more(request, found.num_tokens // self.block_size)
        return PrefixLookup(request.request_id, found.num_tokens, miss, at)

    def why_wait(self, request: ScheduledRequest, found: Found) -> str | None:
        """Why a request cannot start with what was found, or ``None`` when there is room for all its known tokens."""
        for index, (group, pool) in enumerate(zip(self.limits.groups, self.pools, strict=True)):
            shared = found.blocks[index]
            needed = self._most_held(group, request.num_known) - len(shared)
            free = pool.num_free - sum(map(pool.is_free, shared))
            if max(needed, 1) > free:
                return f"no blocks: {max(needed, 1):,} needed, {free:,} free"
        return None

    def start(self, request: ScheduledRequest, found: Found) -> list[BlockCopy]:
        """Share what was found; what is to be copied before the step writes."""
        for table, pool, first, blocks in zip(request.tables, self.pools, found.firsts, found.blocks, strict=True):
            for block in blocks:
                pool.share(block)
            table.num_dropped = first
            table.blocks = [0] * first + blocks
        copies = [BlockCopy(group, source, self.pools[group].alloc()) for group, source in enumerate(found.copied)]
        for copy in copies:
            request.tables[copy.group].blocks.append(copy.target)
        request.num_computed = request.next_start = found.num_tokens
        request.num_published = found.num_tokens // self.block_size
        return copies

    def room(self, request: ScheduledRequest) -> int:
        """How many rows the request could compute now with the blocks it has and the free ones."""
        num_blocks = min(
            len(table.blocks) + pool.num_free for table, pool in zip(request.tables, self.pools, strict=True)
        )
        return num_blocks * self.block_size - request.next_start

    def extend(self, request: ScheduledRequest, count: int) -> tuple[TableChange, ...]:
        """Make room for ``count`` rows."""
        end = num_blocks_for(request.next_start + count, self.block_size)
        changes: list[TableChange] = []
        for group, (table, pool) in enumerate(zip(request.tables, self.pools, strict=True)):
            new = tuple(pool.alloc() for _ in range(end - len(table.blocks)))
            if new:
                changes.append(TableChange(group, len(table.blocks), new))
                table.blocks.extend(new)
        request.room_end = end * self.block_size
        return tuple(changes)

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
        num_blocks = 0
        if self.limits.prefix_cache:
            num_blocks = self._shorten_to_windows(request, self._num_leading(request, most))
        num_tokens = num_blocks * self.block_size
        firsts = [0] * len(self.pools)
        for group, window in self._windows:
            firsts[group] = self._first_needed(num_tokens, window)
        blocks: list[list[int]] = []
        for group, first in enumerate(firsts):
            held = [self._block(request, group, index) for index in range(first, num_blocks)]
            blocks.append([block for block in held if block is not None])
            assert len(blocks[-1]) == len(held)
        return Found(num_tokens, tuple(firsts), tuple(blocks))

    def _most_held(self, group: GroupLimits, length: int) -> int:
        """Blocks that a request of ``length`` positions holds at once at least, if it computes a block at a time."""
        whole = num_blocks_for(length, self.block_size)
        return whole if group.window is None else min(whole, num_blocks_for(group.window, self.block_size) + 1)

    def _first_needed(self, num_computed: int, window: int) -> int:
        """The first table entry that the position ``num_computed`` or a later one sees."""
        return max(0, num_computed - window + 1) // self.block_size

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

    def _why_no_more(self, request: ScheduledRequest, num_found: int) -> tuple[Miss, int | None]:
        """Why the block after the first ``num_found`` ones was not found, and where its tokens begin to differ."""
        most = (request.num_known - 1) // self.block_size
        if not self.limits.prefix_cache:
            return Miss.OFF, None
        if num_found == most:
            return Miss.NONE if most else Miss.SHORT, None
        if self._full and num_found < self._num_leading(request, most):
            return Miss.WINDOW_GONE, None
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
