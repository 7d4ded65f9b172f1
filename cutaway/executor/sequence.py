"""What the executor keeps about a request between steps: its tokens, and where their keys and values lie."""

from collections.abc import Sequence as Ordered

import numpy as np

from cutaway.executor.kv import BlockLayout, KVStore
from cutaway.kernels.batch import Ints
from cutaway.sampling.dry import Repetition, has_dry
from cutaway.sampling.penalties import TokenCounts
from cutaway.scheduler.plan import NewRequest, TableChange

MIN_SLOTS = 256


class SlotTable:
    """The slots of a request's positions in one group of layers. Work per call does not grow with their number.

    Positions that no row will see again are in the empty block, which always holds finite numbers.

    Args:
        layout: of the group.
    """

    def __init__(self, layout: BlockLayout) -> None:
        self._layout = layout
        self._slots = np.full(MIN_SLOTS, layout.empty_slot, dtype=np.int64)
        self._num_dropped = 0  # positions from the beginning that are in the empty block

    def change(self, first: int, blocks: Ordered[int]) -> None:
        """Let the positions from block ``first`` on lie in ``blocks``."""
        begin = first * self._layout.block_size
        slots = self._layout.slots(blocks)
        while begin + len(slots) > len(self._slots):
            self._slots = np.concatenate((self._slots, np.full_like(self._slots, self._layout.empty_slot)))
        self._slots[begin : begin + len(slots)] = slots

    def upto(self, start: int, end: int) -> Ints:
        """The slots of the positions before ``end``, of which those from ``start`` on are computed, [end] int64."""
        window = self._layout.window
        if window is not None and start - window + 1 > self._num_dropped:
            # Others may have these slots by now, and write there what is not finite.
            self._slots[self._num_dropped : start - window + 1] = self._layout.empty_slot
            self._num_dropped = start - window + 1
        return self._slots[:end]


class Sequence:
    """One request's tokens and slots. Grows with the plans; dropped when a plan releases the request."""

    def __init__(self, new: NewRequest, store: KVStore) -> None:
        self.new = new
        self.token_ids = list(new.token_ids)
        self.counts = TokenCounts(new.token_ids)
        self.repetition = Repetition(new.token_ids, new.dry_breakers) if has_dry(new.sampling) else None
        self._store = store
        self.tables = self._empty_tables()

    def change_tables(self, changes: tuple[TableChange, ...]) -> None:
        """Follow the changes of a plan."""
        for change in changes:
            self.tables[change.group].change(change.first, change.blocks)

    def empty_tables(self) -> None:
        """Forget where anything lies; the tokens stay."""
        self.tables = self._empty_tables()

    def append_token(self, token_id: int) -> None:
        """Take in a chosen token."""
        self.token_ids.append(token_id)
        self.counts.add(token_id)
        if self.repetition is not None:
            self.repetition.add(token_id)

    def _empty_tables(self) -> list[SlotTable]:
        return [SlotTable(layout) for layout in self._store.layouts]
