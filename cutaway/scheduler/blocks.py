"""The pool of cache blocks. Blocks are integers; what lies behind them is the executor's business.

Invariant: every block is either free or owned by exactly one request.
"""

from collections import deque
from collections.abc import Iterable


class BlockPool:
    """Hands out blocks and takes them back."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._free = deque(range(num_blocks))

    @property
    def num_free(self) -> int:
        """Blocks that can be allocated now."""
        return len(self._free)

    def alloc(self, count: int) -> tuple[int, ...]:
        """Take ``count`` blocks, of which the caller has seen to it that they are free."""
        assert count <= len(self._free), "the scheduler planned more blocks than are free"
        return tuple(self._free.popleft() for _ in range(count))

    def free(self, blocks: Iterable[int]) -> None:
        """Give blocks back."""
        self._free.extend(blocks)

    def check(self, owned: Iterable[int]) -> None:
        """Assert that the ``owned`` blocks and the free ones are all blocks, each once."""
        every = sorted([*owned, *self._free])
        assert every == list(range(self.num_blocks)), "a block was lost or is owned twice"
