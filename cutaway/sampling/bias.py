"""What a request asks of single tokens before anything else: biases and bans.

Owns what they do to a row of logits. Refuses to know why a token is banned, probabilities and requests.
"""

from collections.abc import Sequence

import numpy as np

from cutaway.sampling.order import Logits


def add_bias(logits: Logits, biases: Sequence[tuple[int, float]]) -> Logits:
    """A copy of ``logits`` with each bias added to its token's logit; -inf stays what it is.

    Source: https://platform.openai.com/docs/api-reference/chat/create, ``logit_bias``: mathematically, the bias is
    added to the logits before sampling.

    Args:
        logits: float32 [vocab].
        biases: (token id, bias) pairs, no id twice.
    """
    token_ids = [token_id for token_id, _ in biases]
    biased = logits.copy()
    biased[token_ids] = biased[token_ids].astype(np.float64) + [bias for _, bias in biases]
    return biased


def ban(logits: Logits, token_ids: Sequence[int]) -> Logits:
    """A copy of ``logits``, float32 [vocab], in which ``token_ids`` cannot be chosen."""
    allowed = logits.copy()
    allowed[list(token_ids)] = -np.inf
    return allowed
