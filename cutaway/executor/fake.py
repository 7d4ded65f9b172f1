"""A runner without a model, for tests of everything around it.

It keeps a real block store for each group of layers and derives each next token from what it *reads* there, as
attention would: from the contents of every slot that the position sees, through the request's block tables. A wrong
block, a stale hit, a block freed too early, a copy that was forgotten, or a row computed twice or never changes the
answer.
"""

import hashlib
from collections.abc import Mapping, Sequence

from cutaway.scheduler.plan import NewRequest, StepPlan, StepResult
from cutaway.types import Draw, TokenChoice

EVERYTHING = (None,)


class FakeRunner:
    """Executes plans over stores of integers.

    Args:
        block_size: positions in a block.
        vocab_size: chosen tokens are below it.
        windows: for each group of layers, how many positions a row sees, its own included; ``None`` for all.
    """

    def __init__(self, block_size: int, vocab_size: int, windows: Sequence[int | None] = EVERYTHING) -> None:
        self.block_size = block_size
        self.vocab_size = vocab_size
        self.windows = windows
        self._stores: list[dict[int, int]] = [{} for _ in windows]
        self._new: dict[str, NewRequest] = {}
        self._tokens: dict[str, list[int]] = {}
        self._tables: dict[str, list[dict[int, int]]] = {}

    @property
    def num_requests(self) -> int:
        """Requests that it has not been told to forget."""
        return len(self._tokens)

    def execute(self, plan: StepPlan) -> StepResult:
        """Store the plan's rows and choose a token after each request that needs one."""
        self._follow(plan)
        choices: dict[str, TokenChoice] = {}
        for rows in plan.rows:
            tokens, tables = self._tokens[rows.request_id], self._tables[rows.request_id]
            for change in rows.changes:
                tables[change.group].update(enumerate(change.blocks, change.first))
            for position in range(rows.start, rows.start + rows.num_rows):
                contents = [self._read(group, table, position) for group, table in enumerate(tables)]
                for group, table in enumerate(tables):
                    self._stores[group][self._slot(table, position)] = _mix(contents[group], tokens[position])
            if rows.needs_sample:
                end = rows.start + rows.num_rows
                read = [self._read(group, table, end) for group, table in enumerate(tables)]
                tokens.append(_choose(read, end, self._new[rows.request_id], self.vocab_size))
                choices[rows.request_id] = TokenChoice(tokens[-1], 0.0, 1, (), Draw(None, 0.0, 1.0, 1.0))
        return StepResult(plan.plan_id, choices, {})

    def _follow(self, plan: StepPlan) -> None:
        for request_id in plan.released:
            del self._new[request_id], self._tokens[request_id], self._tables[request_id]
        for request_id in plan.preempted:
            self._tables[request_id] = [{} for _ in self.windows]
        for new in plan.new:
            self._new[new.request_id] = new
            self._tokens[new.request_id] = list(new.token_ids)
            self._tables[new.request_id] = [{} for _ in self.windows]
        for copy in plan.copies:
            store = self._stores[copy.group]
            for offset in range(self.block_size):
                source = copy.source * self.block_size + offset
                if source in store:
                    store[copy.target * self.block_size + offset] = store[source]

    def _read(self, group: int, table: Mapping[int, int], end: int) -> list[int]:
        """What lies at the positions before ``end`` that a row there sees."""
        positions = range(_oldest(end, self.windows[group]), end)
        return [self._stores[group][self._slot(table, position)] for position in positions]

    def _slot(self, table: Mapping[int, int], position: int) -> int:
        return table[position // self.block_size] * self.block_size + position % self.block_size


def expected_tokens(new: NewRequest, vocab_size: int, windows: Sequence[int | None] = EVERYTHING) -> list[int]:
    """What a ``FakeRunner`` answers to the request when everything around it is right: the loop without a scheduler."""
    tokens = list(new.token_ids)
    contents: list[list[int]] = [[] for _ in windows]
    generated: list[int] = []
    while len(generated) < new.max_tokens:
        while len(contents[0]) < len(tokens):
            end = len(contents[0])
            for window, stored in zip(windows, contents, strict=True):
                stored.append(_mix(stored[_oldest(end, window) : end], tokens[end]))
        read = [stored[_oldest(len(tokens), window) :] for window, stored in zip(windows, contents, strict=True)]
        token_id = _choose(read, len(tokens), new, vocab_size)
        tokens.append(token_id)
        generated.append(token_id)
        if token_id in new.end_ids:
            break
    return generated


def _choose(read: object, position: int, new: NewRequest, vocab_size: int) -> int:
    """The token for a position: the next one, if that is banned there."""
    banned = new.banned_at(position)
    token_id = _mix(read, position) % vocab_size
    while token_id in banned:
        token_id = (token_id + 1) % vocab_size
    return token_id


def _oldest(end: int, window: int | None) -> int:
    """The first position that one at ``end`` sees."""
    return 0 if window is None else max(0, end - window + 1)


def _mix(read: object, value: int) -> int:
    digest = hashlib.blake2b(repr((read, value)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")
