"""Chi-square tests with their power: what a sample of n could have seen, and what it saw.

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

import torch

Outcome = TypeVar("Outcome", bound=Hashable)

LEVEL = 1e-6  # of each test: with m tests a run that should pass fails with a probability of at most m * LEVEL
POWER = 0.999  # with which the smallest visible total variation is seen
FEWEST = 5.0  # expected counts below this are put into one cell, for the chi-square approximation to hold


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
    cells = [
        (sum(observed.get(outcome, 0) for outcome in cell), sum(expected[outcome] for outcome in cell))
        for cell in pooled(expected)
    ]
    statistic = sum((count - mean) ** 2 / mean for count, mean in cells)
    freedom = len(cells) - 1
    p_value = 0.0 if impossible else tail(statistic, freedom)
    return ChiSquare(n, len(cells), statistic, p_value, visible(n, freedom), impossible)


def same(a: Mapping[Outcome, int], b: Mapping[Outcome, int]) -> ChiSquare:
    """Whether two samples come from one law, whatever it is (homogeneity)."""
    sizes = sum(a.values()), sum(b.values())
    share = [size / sum(sizes) for size in sizes]
    both = Counter(a) + Counter(b)
    cells = pooled({outcome: count * min(share) for outcome, count in both.items()})
    rows = [[sum(sample.get(outcome, 0) for outcome in cell) for sample in (a, b)] for cell in cells]
    statistic = sum(
        (count - sum(row) * part) ** 2 / (sum(row) * part) for row in rows for count, part in zip(row, share)
    )
    # Noncentrality is that of one sample of n a b / (a + b) requests: the difference carries both variances.
    effective = sizes[0] * sizes[1] // sum(sizes)
    freedom = len(rows) - 1
    return ChiSquare(sum(sizes), len(rows), statistic, tail(statistic, freedom), visible(effective, freedom), 0)


def pooled(expected: Mapping[Outcome, float]) -> list[list[Outcome]]:
    """Cells of outcomes: the rarest together, up to FEWEST expected, every other one alone."""
    ranked = sorted(expected, key=lambda outcome: expected[outcome])
    below = list(accumulate((expected[outcome] for outcome in ranked), initial=0.0))
    cut = next(
        (i for i, o in enumerate(ranked) if expected[o] >= FEWEST and (i == 0 or below[i] >= FEWEST)), len(ranked)
    )
    return [cell for cell in [ranked[:cut], *([outcome] for outcome in ranked[cut:])] if cell]


def tail(statistic: float, freedom: int) -> float:
    """P(chi-square > statistic); 1 where there is only one cell and so nothing to test."""
    if freedom < 1:
        return 1.0
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
