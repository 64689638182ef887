"""Chi-square tests that are exact, with their power: what a sample of n could have seen, and what it saw.

P-values come from simulation under the hypothesis (Besag and Clifford 1991, "Sequential Monte Carlo p-values"), so the
false-alarm rate is what it is said to be. The limiting distribution would not do so far out: over four cells, five
expected in three of them, a level of 1e-5 means 1.3e-4.

A law q that differs from p by a total variation d has sum (q - p)^2 / p >= 4 d^2 (Cauchy-Schwarz), so the statistic's
noncentrality is at least 4 n d^2: power against every difference of that size follows from n and the cells alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

Outcome = TypeVar("Outcome", bound=Hashable)
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

LEVEL = 1e-5  # of each test: with m tests a run that should pass fails with a probability of at most m * LEVEL
POWER = 0.999  # with which the smallest visible total variation is seen
FEWEST = 5.0  # expected counts below this are put into one cell, for the statement of power to hold
DRAWS = 300_000  # simulated samples of a test that looks failed
CHUNK = 50_000  # at a time
ENOUGH = 20  # simulated samples as bad as the real one end the simulation: the p-value is then known to a quarter


@dataclass(frozen=True, slots=True)
class ChiSquare:
    """One chi-square test. visible: the smallest total variation that it would have seen with probability POWER."""

    n: int
    cells: int
    statistic: float
    p_value: float
    visible: float
    impossible: int  # observations that the law excludes: one is enough to fail

    @property
    def ok(self) -> bool:
        return self.p_value >= LEVEL

    @property
    def figures(self) -> dict[str, float]:
        names = ("n", "cells", "statistic", "p_value", "visible", "impossible")
        return {name: getattr(self, name) for name in names} | {"level": LEVEL, "power": POWER}

    def __str__(self) -> str:
        excluded = f", {self.impossible} impossible" if self.impossible else ""
        return f"p = {self.p_value:.2g}, n = {self.n:,}{excluded}, would have seen {self.visible:.2g}"


def fit(observed: Mapping[Outcome, int], law: Mapping[Outcome, float]) -> ChiSquare:
    """Whether counts come from `law`, which sums to 1. Rare outcomes share one cell."""
    n = sum(observed.values())
    expected = {outcome: n * mass for outcome, mass in law.items() if mass > 0.0}
    impossible = n - sum(observed.get(outcome, 0) for outcome in expected)
    cells = pooled(expected)
    counts = np.array([sum(observed.get(outcome, 0) for outcome in cell) for cell in cells], np.int64)
    means = np.array([sum(expected[outcome] for outcome in cell) for cell in cells])

    def statistics(samples: I64) -> F64:
        return np.asarray(((samples - means) ** 2 / means).sum(-1))

    value = float(statistics(counts))
    shares = means / means.sum()
    p_value = 0.0 if impossible else simulated(value, lambda rng, size: statistics(rng.multinomial(n, shares, size)))
    return ChiSquare(n, len(cells), value, p_value, visible(n, len(cells) - 1), impossible)


def same(a: Mapping[Outcome, int], b: Mapping[Outcome, int]) -> ChiSquare:
    """Whether two samples come from one law, whatever it is: among all ways to deal their outcomes to the two."""
    sizes = sum(a.values()), sum(b.values())
    share = sizes[0] / sum(sizes)
    both = Counter(a) + Counter(b)
    cells = pooled({outcome: count * min(share, 1 - share) for outcome, count in both.items()})
    totals = np.array([sum(both[outcome] for outcome in cell) for cell in cells], np.int64)
    mine = np.array([sum(a.get(outcome, 0) for outcome in cell) for cell in cells], np.int64)

    def statistics(samples: I64) -> F64:
        return np.asarray(((samples - totals * share) ** 2 / (totals * share * (1 - share))).sum(-1))

    value = float(statistics(mine))
    p_value = simulated(value, lambda rng, size: statistics(rng.multivariate_hypergeometric(totals, sizes[0], size)))
    # Noncentrality is that of one sample of n a b / (a + b) requests: the difference carries both variances.
    effective = sizes[0] * sizes[1] // sum(sizes)
    return ChiSquare(sum(sizes), len(cells), value, p_value, visible(effective, len(cells) - 1), 0)


def simulated(value: float, draw: Callable[[np.random.Generator, int], F64]) -> float:
    """How often statistics that are drawn under the hypothesis reach `value`: at most DRAWS, and while few have."""
    rng = np.random.default_rng(0)
    drawn = reached = 0
    while drawn < DRAWS:
        size = min(max(1000, drawn), CHUNK, DRAWS - drawn)
        hits = np.flatnonzero(draw(rng, size) >= value - 1e-9)
        if reached + len(hits) >= ENOUGH:
            return ENOUGH / (drawn + int(hits[ENOUGH - reached - 1]) + 1)
        drawn, reached = drawn + size, reached + len(hits)
    return (reached + 1) / (drawn + 1)


def pooled(expected: Mapping[Outcome, float]) -> list[list[Outcome]]:
    """Cells of outcomes: the rarest together, up to FEWEST expected, every other one alone."""
    ranked = sorted(expected, key=lambda outcome: expected[outcome])
    below = list(accumulate((expected[outcome] for outcome in ranked), initial=0.0))
    cut = next(
        (i for i, o in enumerate(ranked) if expected[o] >= FEWEST and (i == 0 or below[i] >= FEWEST)), len(ranked)
    )
    return [cell for cell in [ranked[:cut], *([outcome] for outcome in ranked[cut:])] if cell]


def tail(statistic: float, freedom: int) -> float:
    """P(chi-square > statistic), in the limit of large samples."""
    return float(_upper(torch.tensor(freedom / 2, dtype=torch.float64), statistic / 2))


def sample_size(distance: float, cells: int) -> int:
    """How many samples see a total variation of `distance` over so many cells with probability POWER."""
    return math.ceil(noncentrality(cells - 1) / (4 * distance**2))


def visible(n: int, freedom: int) -> float:
    """The smallest total variation that n samples see with probability POWER; 1 where they see none."""
    return min(math.sqrt(noncentrality(freedom) / (4 * n)), 1.0) if freedom > 0 and n > 0 else 1.0


@cache
def noncentrality(freedom: int) -> float:
    """The noncentrality at which a chi-square test of LEVEL has POWER."""
    critical = _solve(lambda x: LEVEL - tail(x, freedom), 1e4)
    return _solve(lambda excess: power(critical, freedom, excess) - POWER, 1e4)


def power(critical: float, freedom: int, excess: float) -> float:
    """P(noncentral chi-square > critical): a Poisson mixture of central ones with 2 j more degrees of freedom."""
    half = excess / 2
    j = torch.arange(int(half + 12 * math.sqrt(half) + 40), dtype=torch.float64)
    weights = torch.exp(j * math.log(half) - half - torch.lgamma(j + 1)) if half else (j == 0).double()
    return float((weights * _upper(freedom / 2 + j, critical / 2)).sum())


def _upper(shape: torch.Tensor, x: float) -> torch.Tensor:
    upper: torch.Tensor = torch.special.gammaincc(shape, torch.full_like(shape, x))
    return upper


def _solve(rising: Callable[[float], float], most: float) -> float:
    """Where a rising function becomes 0, by bisection of 0..most."""
    low, high = 0.0, most
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) >= 0 else (middle, high)
    return high
