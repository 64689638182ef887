"""Medians, geometric means and bootstrap intervals of paired measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]

RESAMPLES = 4000
LEVEL = 0.95


def summary(samples: Sequence[float], digits: int = 4) -> dict[str, Any]:
    """Median and minimum of some milliseconds, with the samples themselves."""
    return {
        "ms": round(float(np.median(samples)), digits),
        "min_ms": round(min(samples), digits),
        "samples_ms": [round(sample, digits) for sample in samples],
    }


def geometric_mean(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def speedup(pairs: F64) -> float:
    """pairs [prompts, 4]: plain tokens, plain seconds, speculative tokens, speculative seconds. Rate over rate."""
    return float(_rates(pairs[None])[0])


def resampled_speedups(pairs: F64, seed: int) -> F64:
    """The speedup under RESAMPLES draws of as many prompts, with replacement (Efron 1979)."""
    prompts = len(pairs)
    chosen = np.random.default_rng(seed).integers(0, prompts, (RESAMPLES, prompts))
    return _rates(pairs[chosen])


def interval(resampled: F64, prompts: int) -> tuple[float, float] | None:
    """The middle LEVEL of the resampled values; None for a single prompt, which says nothing about others.

    It covers the choice of prompts and the noise of their times; with few prompts it is somewhat too narrow.
    """
    if prompts < 2:
        return None
    tail = 50.0 * (1.0 - LEVEL)
    low, high = np.percentile(resampled, [tail, 100.0 - tail])
    return float(low), float(high)


def geometric_interval(categories: Mapping[str, F64], seed: int) -> tuple[float, float] | None:
    """The interval of the geometric mean over categories, prompts resampled within each of them."""
    logs = [np.log(resampled_speedups(pairs, seed + i)) for i, pairs in enumerate(categories.values())]
    return interval(np.exp(np.mean(logs, axis=0)), min(map(len, categories.values())))


def _rates(pairs: F64) -> F64:
    """pairs [..., prompts, 4] -> [...]."""
    plain_tokens, plain_s, tokens, seconds = np.moveaxis(pairs.sum(axis=-2), -1, 0)
    return np.asarray((tokens / seconds) / (plain_tokens / plain_s))
