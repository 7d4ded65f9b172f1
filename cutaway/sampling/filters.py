"""The settings that drop tokens, each from one stage of the choice to the next.

Owns their definitions. Refuses to know their order and when they are on. Invariant: what is left are the ``num_kept``
most likely tokens of a distribution. A setting that keeps others (typical-p, XTC) goes on with a new distribution, in
which the tokens that it drops are banned.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cutaway.sampling.distribution import Distribution, Weights

_FIRST_NEAREST = 256  # tokens that typical-p sorts first, and how many times more if they are not enough
_GROWTH = 16


@dataclass(frozen=True, slots=True)
class Stage:
    """What a setting leaves: the ``num_kept`` most likely tokens of a distribution, which share its mass."""

    name: str
    distribution: Distribution
    num_kept: int

    def cut(self, name: str, num_kept: int) -> "Stage":
        """The stage after a setting that keeps at most ``num_kept`` of these tokens, the most likely ones."""
        return Stage(name, self.distribution, min(num_kept, self.num_kept))


def keep_n_sigma(stage: Stage, num_sigmas: float) -> Stage:
    """Keep the logits that are at most so many standard deviations below the largest; the temperature has no say.

    Source: Tang et al., "Top-nσ: Not All Logits Are You Need", arXiv 2411.07641, as
    ``llama_sampler_top_n_sigma_apply`` of llama.cpp (``src/llama-sampling.cpp``) defines it: banned tokens do not
    count, and the deviation is that of all others.
    """
    logits = stage.distribution.order.logits
    possible = logits[logits > -np.inf].astype(np.float64)
    smallest = possible.max() - num_sigmas * possible.std()
    return stage.cut("top_n_sigma", int(np.count_nonzero(possible >= smallest)))


def keep_typical(stage: Stage, level: float) -> Stage:
    """Keep the fewest tokens that exceed ``level`` together, those whose surprise is nearest to the entropy first.

    Equally near ones: the lower id first.
    Source: Meister et al., "Locally Typical Sampling", arXiv 2202.00666; that the level is to be exceeded, not
    reached, is from ``llama_sampler_typical_apply`` of llama.cpp.
    """
    token_ids = stage.distribution.kept_ids(stage.num_kept)
    probabilities = stage.distribution.probabilities(token_ids, stage.num_kept)
    with np.errstate(divide="ignore"):
        surprises = -np.log(probabilities)
    has_weight = probabilities > 0
    entropy = float(np.sum(probabilities[has_weight] * surprises[has_weight]))
    distances = np.abs(surprises - entropy)
    num_wanted = _FIRST_NEAREST
    while True:
        near = _nearest(distances, num_wanted)
        near = near[np.argsort(distances[near], kind="stable")]
        num_kept = int(np.searchsorted(np.cumsum(probabilities[near]), level, "right")) + 1
        if num_kept <= near.size or near.size == token_ids.size:
            kept = token_ids[near[:num_kept]]
            return Stage("typical_p", stage.distribution.only(kept), kept.size)
        num_wanted *= _GROWTH


def _nearest(distances: Weights, count: int) -> npt.NDArray[np.int64]:
    """The places of at least the ``count`` smallest distances, or of all; of equal ones either all or none."""
    if count >= distances.size:
        return np.arange(distances.size)
    return np.flatnonzero(distances <= np.partition(distances, count - 1)[count - 1])


def exclude_top_choices(stage: Stage, threshold: float, applies: bool) -> Stage:
    """If it applies, drop all tokens that have at least the probability ``threshold``, but the least likely of them.

    Source: p-e-w, "Exclude Top Choices (XTC)", https://github.com/oobabooga/text-generation-webui/pull/6335, as
    ``llama_sample_xtc_apply`` of llama.cpp defines it.
    """
    num_dropped = max(stage.distribution.num_likely(threshold, stage.num_kept) - 1, 0) if applies else 0
    if not num_dropped:
        return stage.cut("xtc", stage.num_kept)
    dropped = stage.distribution.order.prefix(num_dropped)[:num_dropped]
    return Stage("xtc", stage.distribution.without(dropped), stage.num_kept - num_dropped)
