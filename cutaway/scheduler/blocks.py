"""The pool of cache blocks of one group of layers. Blocks are integers; what lies behind them is the executor's.

A block is *owned* by the requests (and pins) that count a reference to it, or else *free*. A free block that is
published keeps its content until it is handed out again: eviction is lazy, least recently used first.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable

from cutaway.scheduler.prefix import PrefixIndex


class BlockPool:
    """Hands out blocks, counts their references, takes them back.

    Invariant: every block is either free or referenced, and only free blocks are handed out.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.index = PrefixIndex(num_blocks)
        self._references = [0] * num_blocks
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))  # the first is handed out first

    @property
    def num_free(self) -> int:
        """Blocks that can be handed out now, published ones included."""
        return len(self._free)

    def num_references(self, block: int) -> int:
        """How many count on the block."""
        return self._references[block]

    def is_free(self, block: int) -> bool:
        """Whether nobody counts on the block."""
        return block in self._free

    def alloc(self) -> int:
        """Hand out a block, of which the caller has seen to it that there is one; what it held is forgotten."""
        assert self._free, "the scheduler planned more blocks than are free"
        block, _ = self._free.popitem(last=False)
        if block in self.index:
            self.index.evict(block)
        self._references[block] = 1
        return block

    def share(self, block: int) -> None:
        """Count one more reference; a free block is taken back out of the free ones."""
        self._free.pop(block, None)
        self._references[block] += 1

    def free(self, blocks: Iterable[int]) -> None:
        """Count one reference less to each block, the first one that of the beginning of a prompt.

        Ends of prompts go before their beginnings, since more prompts have a beginning in common; blocks that nobody
        can find go before all others.
        """
        for block in reversed(list(blocks)):
            self._references[block] -= 1
            assert self._references[block] >= 0, "a block was freed twice"
            if not self._references[block]:
                self._free[block] = None
                if block not in self.index:
                    self._free.move_to_end(block, last=False)

    def check(self, owned: Iterable[int]) -> None:
        """Assert that the ``owned`` blocks, each as often as it is counted on, and the free ones are all there are."""
        counts = Counter(owned)
        assert [counts[block] for block in range(self.num_blocks)] == self._references, "a reference was lost"
        unreferenced = [block for block in range(self.num_blocks) if not self._references[block]]
        assert sorted(self._free) == unreferenced, "a block was lost, or is free and owned"
        self.index.check()
