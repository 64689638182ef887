"""Rounds in which every position is accepted with one chance: the simulation beside the formulas of `plan/formulas.py`.

Source: Leviathan et al. 2023, equation 1. Figures and texts of the field quote it for alpha .5, .7, .9 and k 1, 4, 8.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sooner.errors import InputError
from sooner.plan.formulas import best_length, ceiling, expected_tokens, seconds_per_token, speedup


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean and its standard error."""

    mean: float
    error: float

    def off(self, expected: float) -> float:
        """By how many standard errors the mean lies away from what was expected."""
        return abs(self.mean - expected) / self.error if self.error else float(self.mean != expected)


def simulate_rounds(alpha: float, k: int, rounds: int = 300_000, seed: int = 0) -> Estimate:
    """Tokens a round: acceptances before the first rejection among k, and one token more."""
    expected_tokens(alpha, k)  # refuses what is no chance or no length
    if not 2 <= rounds <= 10_000_000:
        raise InputError(f"rounds is {rounds}, must be between 2 and 10,000,000")
    rng, running, tokens = np.random.default_rng(seed), np.ones(rounds, bool), np.ones(rounds)
    for _ in range(k):
        running &= rng.random(rounds) < alpha
        tokens += running
    return Estimate(float(tokens.mean()), float(tokens.std(ddof=1) / np.sqrt(rounds)))


@dataclass(frozen=True, slots=True)
class Best:
    """The draft length that pays most at one acceptance rate."""

    alpha: float
    length: int
    speedup: float
    ceiling: float


def best_lengths(alphas: tuple[float, ...], c: float, longest: int = 64) -> list[Best]:
    """c: cost of a draft step as a share of a plain target pass."""
    found = [(alpha, best_length(alpha, c, longest)) for alpha in alphas]
    return [Best(alpha, k, speedup(alpha, k, c), ceiling(alpha)) for alpha, k in found]


@dataclass(frozen=True, slots=True)
class Balance:
    """Whether a round pays. Milliseconds of one token with and without drafting, and what a whole answer gains."""

    plain_ms: float
    token_ms: float
    speedup: float
    end_to_end: float


def balance(plain_ms: float, round_ms: float, tokens: float, prefill_ms: float = 0.0, answer: int = 100) -> Balance:
    """tokens: committed a round. prefill_ms: until the first token, with or without drafting. answer: in tokens."""
    for name, value in (("plain pass", plain_ms), ("round", round_ms)):
        if not value > 0.0:
            raise InputError(f"the {name} takes {value} ms, must be above 0")
    token_ms = seconds_per_token(round_ms, tokens)
    whole = (prefill_ms + answer * plain_ms) / (prefill_ms + answer * token_ms)
    return Balance(plain_ms, token_ms, plain_ms / token_ms, whole)
