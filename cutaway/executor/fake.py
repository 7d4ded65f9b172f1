"""A runner without a model, for tests of everything around it.

It keeps a real block store and derives each next token from what it *reads* there, as attention would: from the
contents of every slot of the request, through its block table. A wrong block, a block freed too early, or a row
computed twice or never changes the answer.
"""

import hashlib

from cutaway.scheduler.plan import NewRequest, StepPlan, StepResult
from cutaway.types import Draw, TokenChoice


class FakeRunner:
    """Executes plans over a store of integers.

    Args:
        block_size: positions in a block.
        vocab_size: chosen tokens are below it.
    """

    def __init__(self, block_size: int, vocab_size: int) -> None:
        self.block_size = block_size
        self.vocab_size = vocab_size
        self._store: dict[int, int] = {}
        self._tokens: dict[str, list[int]] = {}
        self._blocks: dict[str, list[int]] = {}

    def execute(self, plan: StepPlan) -> StepResult:
        """Store the plan's rows and choose a token after each request that needs one."""
        for request_id in plan.released:
            del self._tokens[request_id], self._blocks[request_id]
        for new in plan.new:
            self._tokens[new.request_id] = list(new.token_ids)
            self._blocks[new.request_id] = []
        choices: dict[str, TokenChoice] = {}
        for rows in plan.rows:
            tokens, blocks = self._tokens[rows.request_id], self._blocks[rows.request_id]
            blocks.extend(rows.new_blocks)
            for position in range(rows.start, rows.start + rows.count):
                before = [self._store[self._slot(blocks, earlier)] for earlier in range(position)]
                self._store[self._slot(blocks, position)] = _mix(before, tokens[position])
            if rows.needs_sample:
                end = rows.start + rows.count
                read = [self._store[self._slot(blocks, position)] for position in range(end)]
                token_id = _mix(read, end) % self.vocab_size
                tokens.append(token_id)
                choices[rows.request_id] = TokenChoice(token_id, 0.0, 1, (), Draw(None, 0.0, 1.0, 1.0))
        return StepResult(plan.plan_id, choices, {})

    def _slot(self, blocks: list[int], position: int) -> int:
        return blocks[position // self.block_size] * self.block_size + position % self.block_size


def expected_tokens(new: NewRequest, vocab_size: int) -> list[int]:
    """What a ``FakeRunner`` answers to the request when everything around it is right: the loop without a scheduler."""
    tokens = list(new.token_ids)
    contents: list[int] = []
    generated: list[int] = []
    while len(generated) < new.max_tokens:
        while len(contents) < len(tokens):
            contents.append(_mix(contents, tokens[len(contents)]))
        token_id = _mix(contents, len(tokens)) % vocab_size
        tokens.append(token_id)
        generated.append(token_id)
        if token_id in new.end_ids:
            break
    return generated


def _mix(read: list[int], value: int) -> int:
    digest = hashlib.blake2b(repr((read, value)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")
