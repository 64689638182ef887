"""The theory of speculative decoding in closed form (Leviathan et al. 2023, sections 3.2 to 3.5).

alpha: acceptance rate, taken as one constant for every position. k: drafted tokens a round. c: cost of one draft step
as a share of one plain target pass. A varying alpha gives fewer tokens than its mean promises where hard stretches
last, because they take many short rounds; `sooner.lab.chain.shortfall` computes by how much.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sooner.errors import InputError
from sooner.types import Distribution


def acceptance_rate(p: Distribution, q: Distribution) -> float:
    """Probability that rejection sampling keeps a token drawn from q: sum of min(p, q) = 1 - TV(p, q)."""
    return float(np.minimum(p, q).sum())


def total_variation(p: Distribution, q: Distribution) -> float:
    return 0.5 * float(np.abs(p - q).sum())


def expected_tokens(alpha: float, k: int) -> float:
    """Tokens a round, correction or bonus included: 1 + alpha + ... + alpha^k (equation 1)."""
    _check(alpha, k)
    return float(k + 1) if alpha == 1.0 else (1.0 - alpha ** (k + 1)) / (1.0 - alpha)


def ceiling(alpha: float) -> float:
    """What expected_tokens approaches as k grows: 1 / (1 - alpha)."""
    _check(alpha, 0)
    return float("inf") if alpha == 1.0 else 1.0 / (1.0 - alpha)


def speedup(alpha: float, k: int, c: float, verification: float = 1.0) -> float:
    """Plain time over speculative time for the same tokens (theorem 3.8).

    verification: a target pass over k + 1 rows in units of a pass over one; the theorem takes it as 1.
    """
    _require(c >= 0.0, f"draft cost is {c}, must be at least 0")
    _require(verification > 0.0, f"verification cost is {verification}, must be above 0")
    return expected_tokens(alpha, k) / (k * c + verification)


def best_length(alpha: float, c: float, longest: int = 64, verification: Sequence[float] | None = None) -> int:
    """The draft length 0..longest with the highest speedup, the shortest among equals.

    verification[k]: the cost of a pass over k + 1 rows; all 1 where it is left out.
    """
    costs = [1.0] * (longest + 1) if verification is None else verification
    gains = [speedup(alpha, k, c, costs[k]) for k in range(longest + 1)]
    return int(np.argmax(gains))


def seconds_per_token(round_seconds: float, tokens_per_round: float) -> float:
    """Cost of a useful token: a whole round, drafting and verification included, over what it commits."""
    _require(tokens_per_round > 0.0, f"tokens a round is {tokens_per_round}, must be above 0")
    return round_seconds / tokens_per_round


def _check(alpha: float, k: int) -> None:
    _require(0.0 <= alpha <= 1.0, f"acceptance rate is {alpha}, must be between 0 and 1")
    _require(k >= 0, f"draft length is {k}, must be at least 0")


def _require(ok: bool, message: str) -> None:
    if not ok:
        raise InputError(message)
