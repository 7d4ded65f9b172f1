"""Probabilities over one row's tokens, and what settings ask of them.

Owns the softmax at a temperature, in float64. Nearly every setting keeps the most likely tokens and drops the rest, so
a filtered distribution is this one and a number: how many tokens are kept. ``only`` and ``without`` are for the others.
Refuses to know which settings exist. Invariants: weights are relative to the most likely token's, which is 1, so
nothing overflows; sums run in the falling order from its beginning, so how far it is sorted never changes a bit.
"""

from typing import Literal

import numpy as np
import numpy.typing as npt

from cutaway.kernels.softmax import exp_sum
from cutaway.sampling.order import FallingOrder, TokenIds
from cutaway.types import Candidate, Draw

Weights = npt.NDArray[np.float64]

_SMALLEST_DRAWN = float(np.finfo(np.float64).tiny)  # below it a weight loses bits, and its probability may become 0


class Distribution:
    """The softmax of a row of logits divided by a temperature.

    Args:
        order: the row.
        temperature: above 0; values so small that the quotient overflows leave weight 0 to all but the best tokens.
    """

    def __init__(self, order: FallingOrder, temperature: float = 1.0) -> None:
        self.order = order
        self._temperature = temperature
        self._best_logit = float(order.logits[order.best_id])
        self._total = order.scan.exp_sum
        if temperature != 1:
            self._total = exp_sum(order.logits, self._best_logit, temperature)
        self._weights: Weights = np.empty(0)  # of the most likely tokens, as far as someone looked
        self._sums: Weights = np.empty(0)  # of the first 1, 2, 3 … of them

    def mass(self, num_kept: int) -> float:
        """The sum of the weights of the ``num_kept`` most likely tokens."""
        if num_kept >= self.order.num_tokens:
            return self._total
        return float(self._cumulative(num_kept)[num_kept - 1])

    def scale_in(self, other: "Distribution") -> float:
        """What a weight of 1 here weighs in a distribution at the same temperature, where fewer tokens are banned."""
        return float(np.exp((self._best_logit - other._best_logit) / self._temperature))

    def logprob(self, token_id: int, num_kept: int) -> float:
        """The natural logarithm of a kept token's probability; -inf where a tiny temperature overflows."""
        difference = float(self.order.logits[token_id]) - self._best_logit
        return difference / self._temperature - float(np.log(self.mass(num_kept)))

    def top(self, count: int, num_kept: int) -> tuple[Candidate, ...]:
        """The ``count`` most likely of the kept tokens, most likely first; none without a finite logprob."""
        count = min(count, num_kept)
        token_ids = self.order.prefix(count)[:count].tolist() if count else []
        candidates = (Candidate(token_id, self.logprob(token_id, num_kept)) for token_id in token_ids)
        return tuple(candidate for candidate in candidates if candidate.logprob > -np.inf)

    def only(self, token_ids: TokenIds) -> "Distribution":
        """The distribution at the same temperature in which all but ``token_ids`` are banned."""
        logits = np.full_like(self.order.logits, -np.inf)
        logits[token_ids] = self.order.logits[token_ids]
        return Distribution(FallingOrder(logits), self._temperature)

    def without(self, token_ids: TokenIds) -> "Distribution":
        """The distribution at the same temperature in which ``token_ids`` are banned."""
        logits = self.order.logits.copy()
        logits[token_ids] = -np.inf
        return Distribution(FallingOrder(logits), self._temperature)

    def kept_ids(self, num_kept: int) -> TokenIds:
        """The kept tokens by rising id, [num_kept]."""
        if num_kept == self.order.num_tokens:  # nothing has to be sorted to know them
            return np.flatnonzero(self.order.logits > -np.inf)
        return np.sort(self.order.prefix(num_kept)[:num_kept])

    def probabilities(self, token_ids: TokenIds, num_kept: int) -> Weights:
        """The probabilities of kept tokens, [tokens]; 0 where float64 cannot hold them."""
        return self._weigh(token_ids) / self.mass(num_kept)

    def num_above_ratio(self, ratio: float) -> int:
        """How many tokens have at least ``ratio`` times the probability of the most likely one."""
        return self._num_heavy(ratio, 1.0)

    def num_likely(self, threshold: float, num_kept: int) -> int:
        """How many of the kept tokens have at least the probability ``threshold``."""
        return min(self._num_heavy(threshold, self.mass(num_kept)), num_kept)

    def num_reaching(self, level: float, num_kept: int, side: Literal["left", "right"]) -> int:
        """The fewest most likely tokens whose share of the kept mass reaches ``level``; at most ``num_kept``.

        Args:
            level: 0 to 1.
            num_kept: the tokens that share the mass, at least 1.
            side: ``"left"`` if equality reaches the level, ``"right"`` if it must be exceeded.
        """
        mass = self.mass(num_kept)
        num_wanted = 1
        while num_wanted <= num_kept:
            shares = self._cumulative(num_wanted)[:num_kept] / mass
            num_below = int(np.searchsorted(shares, level, side))
            if num_below < shares.size:
                return num_below + 1
            num_wanted = shares.size + 1
        return num_kept

    def draw(self, uniform: float, num_kept: int) -> tuple[int, Draw]:
        """The kept token whose interval holds ``uniform``: the inverse of the cumulative distribution.

        The intervals tile [0, 1) in falling order. What rounding leaves over at the end goes to the last token, that
        is, the last one whose probability float64 can hold.
        """
        place = self.num_reaching(uniform, num_kept, "right")
        weights = self._falling_weights(min(place + 1, num_kept))
        place = min(place, int(np.count_nonzero(weights[:place] >= _SMALLEST_DRAWN)))
        is_last = place == num_kept or weights[place] < _SMALLEST_DRAWN
        mass = self.mass(num_kept)
        sums = self._cumulative(place)
        low = float(sums[place - 2]) / mass if place > 1 else 0.0
        high = 1.0 if is_last else min(float(sums[place - 1]) / mass, 1.0)
        return int(self.order.prefix(place)[place - 1]), Draw(uniform, low, high, float(weights[place - 1]) / mass)

    def _num_heavy(self, share: float, mass: float) -> int:
        """How many tokens have at least this share of a mass."""
        num_wanted = 1
        while True:
            weights = self._falling_weights(num_wanted)
            num_heavy = int(np.count_nonzero(weights / mass >= share))
            if num_heavy < weights.size or weights.size == self.order.logits.size:
                return num_heavy
            num_wanted = weights.size + 1

    def _falling_weights(self, count: int) -> Weights:
        """Weights of at least the ``count`` most likely tokens, or of all."""
        if count > self._weights.size:
            self._weights = self._weigh(self.order.prefix(count))
        return self._weights

    def _weigh(self, token_ids: TokenIds) -> Weights:
        logits = self.order.logits[token_ids].astype(np.float64)
        with np.errstate(over="ignore"):
            weights: Weights = np.exp((logits - self._best_logit) / self._temperature)
        return weights

    def _cumulative(self, count: int) -> Weights:
        """Sums of the weights of the 1, 2, 3 … most likely tokens, for at least ``count`` of them."""
        weights = self._falling_weights(count)
        if weights.size > self._sums.size:
            self._sums = np.cumsum(weights)
        return self._sums
