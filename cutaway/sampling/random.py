"""Random numbers that can be derived instead of remembered.

Owns a counter-based generator: the number for a seed, a position and a purpose is a pure function of the three.
Refuses to know requests, batches and tensors. Invariants: no state, so neither neighbours in a batch, nor
preemption, nor a replay can change a draw; the same numbers on every machine, because only whole numbers are used
until the last multiplication, which is exact.
"""

from enum import IntEnum

_WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_INCREMENTS = (0x9E3779B9, 0xBB67AE85)  # the golden ratio and sqrt(3) - 1, as 32-bit fractions
_NUM_ROUNDS = 10


class Purpose(IntEnum):
    """What a random number is for; each purpose is a stream of its own, so one cannot shift another.

    The values are part of every receipt and never change.
    """

    TOKEN = 0  # choose the token at this position
    ACCEPT = 1  # accept or refuse a drafted token at this position
    XTC = 2  # whether the top choices are excluded at this position


def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Philox4x32-10: a keyed bijection of four 32-bit words whose outputs pass as random.

    Source: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011, section 3.3.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_NUM_ROUNDS):
        product0 = _MULTIPLIERS[0] * c0
        product1 = _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (
            (product1 >> 32) ^ c1 ^ k0,
            product1 & _WORD,
            (product0 >> 32) ^ c3 ^ k1,
            product0 & _WORD,
        )
        k0 = (k0 + _KEY_INCREMENTS[0]) & _WORD
        k1 = (k1 + _KEY_INCREMENTS[1]) & _WORD
    return c0, c1, c2, c3


def uniform(seed: int, position: int, purpose: Purpose) -> float:
    """A number from [0, 1) with 53 random bits.

    Args:
        seed: 64 bits, signed or unsigned; a negative seed means its two's complement.
        position: the token's place in its request, counted from the first token of the prompt; below 2**64.
        purpose: what the number is for.
    """
    counter = (position & _WORD, (position >> 32) & _WORD, purpose & _WORD, 0)
    key = (seed & _WORD, (seed >> 32) & _WORD)
    low, high, _, _ = philox4x32(counter, key)
    return ((high << 32 | low) >> 11) * 2.0**-53
