"""What the executor keeps about a request between steps: its tokens, and where their keys and values lie."""

import torch
from torch import Tensor

from cutaway.sampling.penalties import TokenCounts
from cutaway.scheduler.plan import NewRequest


class Sequence:
    """One request's tokens and slots. Grows with the plans; dropped when a plan releases the request."""

    def __init__(self, new: NewRequest, block_size: int) -> None:
        self.new = new
        self.token_ids = list(new.token_ids)
        self.counts = TokenCounts(new.token_ids)
        self.slots = torch.empty(0, dtype=torch.int64)  # [positions that have a block]
        self._offsets = torch.arange(block_size)

    def append_blocks(self, blocks: tuple[int, ...]) -> None:
        """Extend the block table."""
        if blocks:
            starts = torch.tensor(blocks).unsqueeze(1) * self._offsets.shape[0]
            self.slots = torch.cat((self.slots, (starts + self._offsets).flatten()))

    def append_token(self, token_id: int) -> None:
        """Take in a chosen token."""
        self.token_ids.append(token_id)
        self.counts.add(token_id)

    def slots_upto(self, num_positions: int) -> Tensor:
        """The slots of the first positions, [num_positions] int64."""
        return self.slots[:num_positions]
