"""One request as the scheduler keeps it: how much is known, how much is computed, how much is under way.

There are no phases. A request has *known* tokens (its prompt and what was generated so far) and *computed* tokens
(those whose keys and values lie in the cache); a step computes some of the difference.

    position    0          num_computed            next_start          num_known (+ num_pending)
                |  in cache  |  planned, in flight  |  work for a plan  |

A prefix hit is a jump of ``num_computed``, preemption sets it to zero. What a step looks at for every request is kept
as a number and not worked out anew: with hundreds of requests that is most of what planning costs.
"""

from collections.abc import Iterator

from cutaway.scheduler.plan import NewRequest
from cutaway.scheduler.prefix import next_digest


class BlockTable:
    """Where the positions of one request lie, for one group of layers.

    ``blocks[i]`` holds the positions from ``i * block_size`` on; the first ``num_dropped`` entries are given back,
    because no later position sees them (a window has passed), and must not be read.
    """

    __slots__ = ("blocks", "num_dropped")

    def __init__(self) -> None:
        self.blocks: list[int] = []
        self.num_dropped = 0

    @property
    def held(self) -> list[int]:
        """The blocks that the request counts on."""
        return self.blocks[self.num_dropped :]


class ScheduledRequest:
    """Mutable record of one request. Owned by the scheduler alone."""

    __slots__ = (
        "digests",
        "end_id",
        "finished",
        "generated",
        "landing_end",
        "new",
        "next_start",
        "num_cached",
        "num_computed",
        "num_known",
        "num_pending",
        "num_published",
        "num_worth_computing",
        "order",
        "overdue",
        "preempted",
        "request_id",
        "room_end",
        "tables",
        "told",
        "waiting_since_s",
    )

    def __init__(self, new: NewRequest, root: bytes, num_groups: int, order: int, now: float) -> None:
        self.new = new
        self.request_id = new.request_id
        self.generated: list[int] = []
        self.num_known = len(new.token_ids)
        self.num_worth_computing = longest_length(new)
        self.num_computed = 0
        self.next_start = 0  # first position that no plan covers yet
        self.num_pending = 0  # samples planned, result not yet committed
        self.num_cached = 0  # prompt tokens found in the cache when it was first admitted
        self.tables = [BlockTable() for _ in range(num_groups)]
        self.room_end = 0  # positions before it have a block
        self.landing_end = 0  # once this many are computed, there are blocks to publish or to give back
        self.digests = [root]  # of no block, of the first block, of the second, ...
        self.num_published = 0  # blocks that others can find, or that were found
        self.order = order  # of arrival
        self.waiting_since_s = now
        self.overdue = False
        self.finished = False
        self.end_id: int | None = None  # the end token that was chosen
        self.preempted = False  # waits, or waits for its rows in flight, to start anew
        self.told = ""  # why it waits, as the last plan said

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Who goes first: the smaller. Overdue requests before all others, then priority, then arrival."""
        return (not self.overdue, 0 if self.overdue else self.new.priority, self.order)

    @property
    def num_in_flight(self) -> int:
        """Rows that are planned and whose result is not yet committed."""
        return self.next_start - self.num_computed

    @property
    def num_work(self) -> int:
        """Rows that a plan could compute now. A token whose choice is in flight counts: the executor knows it first."""
        return min(self.num_known + self.num_pending, self.num_worth_computing) - self.next_start

    def tokens(self, start: int, end: int) -> tuple[int, ...]:
        """The known tokens from ``start`` to ``end``."""
        num_prompt = len(self.new.token_ids)
        if end <= num_prompt:
            return self.new.token_ids[start:end]
        generated = self.generated[max(0, start - num_prompt) : end - num_prompt]
        return (*self.new.token_ids[start:num_prompt], *generated)

    def digest(self, num_blocks: int, block_size: int) -> bytes:
        """The digest of the first ``num_blocks`` blocks, whose tokens are known."""
        while len(self.digests) <= num_blocks:
            start = (len(self.digests) - 1) * block_size
            self.digests.append(next_digest(self.digests[-1], self.tokens(start, start + block_size)))
        return self.digests[num_blocks]

    def check(self) -> None:
        """Assert that its counts can be."""
        assert 0 <= self.num_computed <= self.next_start
        assert self.finished or self.next_start <= self.num_known + self.num_pending
        assert self.num_known == len(self.new.token_ids) + len(self.generated)

    def start_anew(self) -> Iterator[list[int]]:
        """Forget what is computed; yields the blocks that are to be freed, a list for each group."""
        for table in self.tables:
            yield table.held
            table.blocks, table.num_dropped = [], 0
        self.num_computed = self.next_start = self.num_published = self.room_end = self.landing_end = 0


def num_blocks_for(num_positions: int, block_size: int) -> int:
    """Blocks that hold ``num_positions`` positions."""
    return -(-num_positions // block_size)


def longest_length(new: NewRequest) -> int:
    """Positions that the request can come to need in the cache; its last token is never computed."""
    return len(new.token_ids) + new.max_tokens - 1
