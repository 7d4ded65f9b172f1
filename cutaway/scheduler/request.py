"""One request as the scheduler keeps it: how much is known, how much is computed, how much is under way.

There are no phases. A request has *known* tokens (its prompt and what was generated so far) and *computed* tokens
(those whose keys and values lie in the cache); a step computes some of the difference.

    position    0          num_computed            next_start          num_known (+ num_pending)
                |  in cache  |  planned, in flight  |  work for a plan  |
"""

from cutaway.scheduler.plan import NewRequest


class ScheduledRequest:
    """Mutable record of one request. Owned by the scheduler alone."""

    __slots__ = (
        "blocks",
        "finished",
        "generated",
        "new",
        "num_computed",
        "num_in_flight",
        "num_pending",
        "num_reserved",
    )

    def __init__(self, new: NewRequest, num_reserved: int) -> None:
        self.new = new
        self.generated: list[int] = []
        self.num_computed = 0
        self.num_in_flight = 0  # rows planned, result not yet committed
        self.num_pending = 0  # samples planned, result not yet committed
        self.num_reserved = num_reserved  # blocks that it may come to hold
        self.blocks: list[int] = []
        self.finished = False

    @property
    def num_known(self) -> int:
        """Tokens whose ids are known."""
        return len(self.new.token_ids) + len(self.generated)

    @property
    def next_start(self) -> int:
        """First position that no plan covers yet."""
        return self.num_computed + self.num_in_flight

    @property
    def num_work(self) -> int:
        """Rows that a plan could compute now. A token whose choice is in flight counts: the executor knows it first."""
        if self.finished or len(self.generated) + self.num_pending >= self.new.max_tokens:
            return 0  # the last token of an answer is chosen, never computed
        return self.num_known + self.num_pending - self.next_start

    def blocks_needed(self, count: int, block_size: int) -> int:
        """Blocks to append to the table so that ``count`` more rows have room."""
        return max(0, num_blocks_for(self.next_start + count, block_size) - len(self.blocks))


def num_blocks_for(num_positions: int, block_size: int) -> int:
    """Blocks that hold ``num_positions`` positions."""
    return -(-num_positions // block_size)


def longest_length(new: NewRequest) -> int:
    """Positions that the request can come to need in the cache; its last token is never computed."""
    return len(new.token_ids) + new.max_tokens - 1
