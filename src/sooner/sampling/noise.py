"""Counter-based randomness: every draw is a pure function of named counters, never of what was drawn before.

Philox 4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3") turns (key, counter) into four 32-bit
words; two words make one double. The logarithm is our own, from +, -, *, / alone, so that every device and kernel
returns the same bits: libm and vector libraries differ in the last place, and a last place can turn an argmax.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]
F64 = NDArray[np.float64]

_MULTIPLIER = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)

_LN2 = 0.6931471805599453
_SQRT2 = 1.4142135623730951
# atanh series: log m = 2 s (1 + s^2/3 + s^4/5 + ...), s = (m - 1)/(m + 1), |s| < 0.172; 11 terms reach 1e-17.
_SERIES = tuple(1.0 / (2 * i + 1) for i in range(11))

LARGEST_GUMBEL = 36.8  # no draw exceeds -log(-log(1 - 2^-53)) = 36.74


class Purpose(IntEnum):
    """What a draw is for. Draws of different purposes never share a counter."""

    TOKEN = 0  # the Gumbel noise of seeded sampling: keyed by output position and token
    DRAFT = 1  # from here on keyed by the ledger length at the start of the round, and an index in the round
    ACCEPT = 2
    CORRECT = 3


def philox(key: int, c0: U64, c1: int, c2: int, c3: int) -> tuple[U64, U64, U64, U64]:
    """Ten rounds of Philox 4x32 on the counters (c0[i], c1, c2, c3) under a 64-bit key; four words each < 2^32."""
    k0, k1 = np.uint64(key & 0xFFFFFFFF), np.uint64(key >> 32)
    x0 = c0.astype(np.uint64)
    x1, x2, x3 = (np.full_like(x0, c) for c in (c1, c2, c3))
    for _ in range(10):
        p0, p1 = x0 * _MULTIPLIER[0], x2 * _MULTIPLIER[1]
        x0, x1, x2, x3 = (p1 >> _SHIFT) ^ x1 ^ k0, p1 & _LOW, (p0 >> _SHIFT) ^ x3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return x0, x1, x2, x3


def unit(high: U64, low: U64) -> F64:
    """52 random bits at the centres of 2^52 equal cells of (0, 1): never 0, never 1, exact in a double."""
    bits = (high << np.uint64(20)) | (low >> np.uint64(12))
    return (bits.astype(np.float64) + 0.5) * 2.0**-52


def log(x: F64) -> F64:
    """Natural logarithm of positive normal doubles, to about 2 units in the last place, same bits everywhere."""
    mantissa, exponent = np.frexp(x)
    low = mantissa < _SQRT2 / 2
    m = np.where(low, mantissa * 2.0, mantissa)
    e = exponent.astype(np.float64) - low
    s = (m - 1.0) / (m + 1.0)
    s2 = s * s
    series = np.full_like(s, _SERIES[-1])
    for term in _SERIES[-2::-1]:
        series = series * s2 + term
    return e * _LN2 + 2.0 * s * series


@dataclass(frozen=True, slots=True)
class Noise:
    """The randomness of one sample of one request: `seed` below 2^64, `sample` its index among n."""

    seed: int
    sample: int = 0

    def gumbel(self, position: int, tokens: U64) -> F64:
        """Standard Gumbel noise for `tokens` [N] at output position `position`: argmax(logits + noise) samples them."""
        a, b, c, d = philox(self.seed, tokens >> np.uint64(1), position, self.sample, Purpose.TOKEN)
        odd = (tokens & np.uint64(1)).astype(bool)
        return -log(-log(unit(np.where(odd, c, a), np.where(odd, d, b))))

    def below(self, purpose: Purpose, start: int, index: int, probability: float) -> bool:
        """True with this probability: the index-th question of its purpose in the round that starts at `start`."""
        return self._uniform(purpose, start, index) <= probability

    def pick(self, purpose: Purpose, start: int, index: int, weights: F64) -> int:
        """A token drawn in proportion to weights [V], by inverse transform; a token without weight is never drawn."""
        cumulated = weights.cumsum()
        u = self._uniform(purpose, start, index)
        token = int(np.searchsorted(cumulated, u * cumulated[-1], side="right"))
        if token == len(weights):  # u * total was rounded up to total: it belongs to the last token with weight
            token = int(np.flatnonzero(weights)[-1])
        return token

    def _uniform(self, purpose: Purpose, start: int, index: int) -> float:
        a, b, _, _ = philox(self.seed, np.array([index], np.uint64), start, self.sample, purpose)
        return float(unit(a, b)[0])
