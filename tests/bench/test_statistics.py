from __future__ import annotations

import numpy as np
import pytest

from sooner.bench import statistics
from sooner.bench.statistics import F64, geometric_interval, geometric_mean, interval, resampled_speedups, speedup


def pairs_of(ratios: F64, tokens: float = 50.0) -> F64:
    """Prompts of equal length whose speculative times are the plain ones over `ratios`."""
    return np.stack([np.full_like(ratios, tokens), np.ones_like(ratios), np.full_like(ratios, tokens), 1 / ratios], 1)


def test_speedup_is_rate_over_rate() -> None:
    # 100 tokens in 4 s plain; 90 tokens in 2 s speculative: 45 over 25 tokens/s
    assert speedup(np.array([[60, 1, 50, 0.5], [40, 3, 40, 1.5]])) == pytest.approx(1.8)


def test_equal_prompts_leave_no_doubt() -> None:
    assert interval(resampled_speedups(pairs_of(np.full(8, 1.5)), seed=1), 8) == pytest.approx((1.5, 1.5))


def test_one_prompt_says_nothing_about_others() -> None:
    assert interval(resampled_speedups(pairs_of(np.array([1.5])), seed=1), 1) is None


def test_interval_covers_the_true_speedup_as_often_as_it_says() -> None:
    random = np.random.default_rng(7)
    covered = 0
    for trial in range(100):
        seconds = random.normal(0.5, 0.1, 30)  # true speedup 2
        found = interval(resampled_speedups(pairs_of(1 / seconds), seed=trial), 30)
        assert found is not None
        covered += found[0] <= 2.0 <= found[1]
    assert 0.86 <= covered / 100 <= 0.99  # 95% less what 30 prompts cost, within 3 standard errors


def test_more_prompts_narrow_the_interval_and_the_seed_fixes_it() -> None:
    ratios = np.tile([1.0, 1.2, 2.0, 3.0], 2)
    few, many = (resampled_speedups(pairs_of(np.tile(ratios, n)), seed=3) for n in (1, 8))
    assert np.ptp(np.percentile(many, [5, 95])) < 0.5 * np.ptp(np.percentile(few, [5, 95]))
    assert np.array_equal(few, resampled_speedups(pairs_of(ratios), seed=3))


def test_geometric_mean_and_its_interval() -> None:
    assert geometric_mean([0.5, 2.0, 8.0]) == pytest.approx(2.0)
    same = {"a": pairs_of(np.full(4, 0.5)), "b": pairs_of(np.full(4, 8.0))}
    assert geometric_interval(same, seed=0) == pytest.approx((2.0, 2.0))
    assert geometric_interval(same | {"c": pairs_of(np.array([1.0]))}, seed=0) is None


def test_summary_has_median_minimum_and_samples() -> None:
    assert statistics.summary([3.0, 1.0, 2.0]) == {"ms": 2.0, "min_ms": 1.0, "samples_ms": [3.0, 1.0, 2.0]}
