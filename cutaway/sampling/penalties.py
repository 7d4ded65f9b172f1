"""Penalties for tokens that a request has already seen.

Owns which tokens those are, and what the three penalties do to their logits. Refuses to know probabilities and
requests. Invariant: the cost of a penalty follows the number of distinct tokens seen, not the vocabulary.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cutaway.errors import GenerationError
from cutaway.sampling.order import Logits, TokenIds
from cutaway.types import SamplingParams


class TokenCounts:
    """Which tokens a request's prompt holds, and how often each token occurred in its output.

    Args:
        prompt_token_ids: the prompt.
        output_token_ids: tokens already generated, when a request is taken up again.
    """

    def __init__(self, prompt_token_ids: Sequence[int] = (), output_token_ids: Sequence[int] = ()) -> None:
        prompt = dict.fromkeys(prompt_token_ids)
        self._slots = {token_id: slot for slot, token_id in enumerate(prompt)}
        self._token_ids: TokenIds = np.fromiter(prompt, dtype=np.int64, count=len(prompt))
        self._num_outputs: TokenIds = np.zeros(len(prompt), dtype=np.int64)
        for token_id in output_token_ids:
            self.add(token_id)

    def add(self, token_id: int) -> None:
        """Count one more occurrence in the output."""
        slot = self._slots.setdefault(token_id, len(self._slots))
        if slot == self._token_ids.size:  # room is doubled, so an addition costs the same however long the answer
            room = np.zeros(max(slot, 64), dtype=np.int64)
            self._token_ids = np.concatenate((self._token_ids, room))
            self._num_outputs = np.concatenate((self._num_outputs, room))
        self._token_ids[slot] = token_id
        self._num_outputs[slot] += 1

    @property
    def token_ids(self) -> TokenIds:
        """Every distinct token of prompt and output, in the order of first appearance."""
        return self._token_ids[: len(self._slots)]

    @property
    def num_outputs(self) -> npt.NDArray[np.int64]:
        """How often each token of ``token_ids`` occurred in the output."""
        return self._num_outputs[: len(self._slots)]


def has_penalties(params: SamplingParams) -> bool:
    """Whether any penalty is set."""
    return params.repetition_penalty != 1 or params.presence_penalty != 0 or params.frequency_penalty != 0


def penalize(logits: Logits, params: SamplingParams, counts: TokenCounts) -> Logits:
    """A copy of ``logits`` with the penalties applied.

    Repetition (prompt and output): a positive logit is divided, a negative one multiplied. Source: Keskar et al.,
    "CTRL", 2019, section 4.1, with the rule for negative logits that became usual. Then, for output only, as in
    OpenAI's API: frequency is subtracted once for each occurrence, presence once.

    Raises:
        GenerationError: a logit left the range of float32.
    """
    before = logits[counts.token_ids].astype(np.float64)  # [num_distinct]
    with np.errstate(over="ignore"):
        scaled = np.where(before > 0, before / params.repetition_penalty, before * params.repetition_penalty)
        scaled -= params.frequency_penalty * counts.num_outputs
        scaled -= params.presence_penalty * (counts.num_outputs > 0)
        after = scaled.astype(np.float32)
    num_lost = np.count_nonzero(np.isfinite(before) & ~np.isfinite(after))
    if num_lost:
        raise GenerationError(
            f"repetition_penalty {params.repetition_penalty:g} drives {num_lost:,} logits out of the range of float32",
            hint="choose a value closer to 1",
        )
    penalized = logits.copy()
    penalized[counts.token_ids] = after
    return penalized
