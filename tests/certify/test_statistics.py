"""The chi-square tests and their power, against scipy."""

import numpy as np
import pytest
from scipy import stats

from sooner.certify import statistics
from sooner.certify.statistics import LEVEL, POWER, fit, noncentrality, power, same, sample_size, tail, visible


@pytest.mark.parametrize("freedom", [1, 2, 26, 63, 250])
def test_tail_and_power_are_scipys(freedom: int) -> None:
    for x in (0.5, 20.0, 300.0):
        assert tail(x, freedom) == pytest.approx(stats.chi2.sf(x, freedom), rel=1e-8)
    critical = stats.chi2.isf(LEVEL, freedom)
    for excess in (0.0, 3.0, 90.0):
        assert power(critical, freedom, excess) == pytest.approx(stats.ncx2.sf(critical, freedom, excess), rel=1e-6)
    assert stats.ncx2.sf(critical, freedom, noncentrality(freedom)) == pytest.approx(POWER, abs=1e-6)


def test_fit_is_scipys_where_no_cell_is_rare() -> None:
    law, observed = {"a": 0.5, "b": 0.3, "c": 0.2}, {"a": 530, "b": 270, "c": 200}
    test = fit(observed, law)
    wanted = stats.chisquare(list(observed.values()), [500, 300, 200])
    assert test.statistic == pytest.approx(wanted.statistic)
    assert test.p_value == pytest.approx(wanted.pvalue, rel=0.5)  # simulated
    assert (test.n, test.cells, test.ok) == (1000, 3, True)


def test_rare_outcomes_share_a_cell_and_impossible_ones_fail() -> None:
    law = {0: 0.98, 1: 0.012, 2: 0.008, 3: 0.0}
    assert fit({0: 196, 1: 3, 2: 1}, law).cells == 1  # 4 expected in the rare ones, too few even together
    assert fit({0: 980, 1: 12, 2: 8}, law).cells == 3
    excluded = fit({0: 979, 1: 12, 2: 8, 3: 1}, law)
    assert (excluded.impossible, excluded.p_value, excluded.ok) == (1, 0.0, False)
    assert fit({0: 980, 1: 12, 2: 7, 9: 1}, law).impossible == 1  # never heard of


def test_same_is_scipys_contingency() -> None:
    a, b = {"x": 60, "y": 40, "z": 20}, {"x": 90, "y": 50, "z": 150}
    test = same(a, b)
    wanted = stats.chi2_contingency([list(a.values()), list(b.values())], correction=False)
    assert test.statistic == pytest.approx(wanted.statistic)
    assert test.p_value < LEVEL and wanted.pvalue < LEVEL
    again = same(a, a | {"x": 75})
    assert again.p_value == pytest.approx(stats.chi2_contingency([[60, 40, 20], [75, 40, 20]]).pvalue, rel=0.5)
    assert same({"x": 5}, {"x": 5}).p_value == 1.0


def test_p_values_are_exact_where_the_limit_is_not() -> None:
    """Two cells, five expected in one: 20 there are an alarm in the limit, and come by chance more often than that."""
    n, share = 45, 1 / 9
    law, observed = {0: share, 1: 1 - share}, {0: 16, 1: n - 16}
    exact = stats.binomtest(16, n, share).pvalue
    assert fit(observed, law).p_value == pytest.approx(exact, rel=0.6)
    assert stats.chisquare([16, n - 16], [n * share, n - n * share]).pvalue < exact / 5


def test_p_values_of_exact_samples_are_small_as_rarely_as_they_say() -> None:
    rng, law = np.random.default_rng(5), {0: 0.7, 1: 0.2, 2: 0.1}
    values = [fit(dict(enumerate(map(int, rng.multinomial(80, list(law.values()))))), law).p_value for _ in range(1000)]
    for level in (0.02, 0.1, 0.3):
        assert abs(np.mean(np.array(values) <= level) - level) < 4 * (level / len(values)) ** 0.5


def test_the_visible_distance_is_seen() -> None:
    """At the stated distance a test of LEVEL fails nearly always, at none it passes."""
    n, rng = 4000, np.random.default_rng(3)
    p = np.full(8, 1 / 8)
    distance = visible(n, 7)
    shifted = p + np.array([1, -1] * 4) * distance / 4  # total variation = distance
    law = dict(enumerate(p))
    assert all(fit(dict(enumerate(rng.multinomial(n, p))), law).ok for _ in range(50))
    assert not any(fit(dict(enumerate(rng.multinomial(n, shifted))), law).ok for _ in range(5))
    assert sample_size(distance, 8) == pytest.approx(n, abs=1)


def test_figures_and_words_agree() -> None:
    test = fit({0: 100, 1: 110}, {0: 0.5, 1: 0.5})
    assert test.figures.keys() >= {"n", "p_value", "visible", "level", "power"}
    assert "n = 210" in str(test) and statistics.FEWEST == 5
