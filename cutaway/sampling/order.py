"""The tokens of one row of logits from the most to the least likely, sorted only as far as someone looks.

Owns the one order that ranks, filters and draws share. Refuses to know probabilities and settings.
Invariants: the order is total: equal logits are ordered by token id, so nothing depends on the kind of sort;
how far the row has been sorted never changes an answer.

numpy rather than torch: its sorts and selections are vectorised (measured faster on CPU).
"""

import numpy as np
import numpy.typing as npt

from cutaway.kernels.softmax import RowScan, scan_row

Logits = npt.NDArray[np.float32]
TokenIds = npt.NDArray[np.int64]

_FIRST_PREFIX = 256  # most draws end within it; sorting it costs next to nothing beside finding it
_GROWTH = 16
_GROUP = 16


class FallingOrder:
    """A row of logits, with its most likely tokens sorted lazily.

    Args:
        logits: the row, [vocab]; holds no NaN and no +inf, and at least one finite value.
        scan: what is known about it.

    Attributes:
        logits: the row.
        scan: what is known about it.
        best_id: the most likely token.
        num_tokens: tokens that can be chosen at all, that is, whose logit is not -inf.
    """

    def __init__(self, logits: Logits, scan: RowScan | None = None) -> None:
        self.logits = logits
        self.scan = scan_row(logits) if scan is None else scan
        self.best_id = self.scan.best_id
        self.num_tokens = self.scan.num_tokens
        self._prefix: TokenIds = np.empty(0, dtype=np.int64)

    def prefix(self, count: int) -> TokenIds:
        """At least the ``count`` most likely tokens, most likely first; all that are sorted so far."""
        if count > self._prefix.size:
            size = _FIRST_PREFIX
            while size < count:
                size *= _GROWTH
            self._prefix = _most_likely(self.logits, size)
        return self._prefix

    def rank(self, token_id: int) -> int:
        """The token's place in the order, from 1, without sorting."""
        if token_id == self.best_id:
            return 1
        logit = self.logits[token_id]
        num_above = np.count_nonzero(self.logits > logit)
        num_equal_before = np.count_nonzero(self.logits[:token_id] == logit)
        return int(num_above + num_equal_before) + 1


def _most_likely(logits: Logits, count: int) -> TokenIds:
    """The ``count`` most likely tokens in order, or the whole vocabulary if it is smaller."""
    if count >= logits.size:
        return _sorted(logits, np.arange(logits.size))
    smallest = _reached_by(logits, count)
    return _sorted(logits, np.flatnonzero(logits >= smallest))[:count]  # ties at the end: the lower ids stay


def _reached_by(logits: Logits, count: int) -> float:
    """A logit that at least ``count`` tokens reach, and not many more.

    The logits are cut into groups, and the groups with the ``count`` largest maxima have such a token each.
    """
    maxima = logits
    if logits.size >= 4 * _GROUP * count:
        maxima = logits[: logits.size // _GROUP * _GROUP].reshape(_GROUP, -1).max(axis=0)
    return float(np.partition(maxima, maxima.size - count)[maxima.size - count])


def _sorted(logits: Logits, token_ids: TokenIds) -> TokenIds:
    """``token_ids`` by falling logit, equal logits by rising id.

    Each token becomes one whole number, its logit's complement above its id, so a plain sort does both at once.
    As whole numbers floats sort by magnitude; flipping the magnitude of the negative ones makes that their order.
    """
    bits = (logits[token_ids] + np.float32(0)).view(np.int32)  # + 0 turns -0.0 into 0.0: they are equal
    rising = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    keys = (~rising).astype(np.int64) << 32 | token_ids
    keys.sort()
    return keys & 0xFFFFFFFF
