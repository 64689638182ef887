"""The generator itself: equality of plain and speculative output cannot find a poor one, it would bias both alike."""

import math

import numpy as np
import pytest
from scipy import stats

from sooner.sampling.noise import LARGEST_GUMBEL, Noise, Purpose, log, philox
from sooner.sampling.road import Road
from sooner.types import SamplingParams


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [  # the known-answer vectors published with Random123 for philox4x32-10
        ((0, 0, 0, 0), 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, 0xFFFFFFFFFFFFFFFF, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            0x299F31D0A4093822,
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_known_answers(counter: tuple[int, int, int, int], key: int, words: tuple[int, ...]) -> None:
    result = philox(key, np.array([counter[0]], np.uint64), *counter[1:])
    assert tuple(int(word[0]) for word in result) == words


def test_log_is_accurate_over_the_whole_range_that_noise_uses() -> None:
    u = np.concatenate([2.0 ** -np.arange(1, 54), 1 - 2.0 ** -np.arange(2, 54), np.linspace(0.001, 0.999, 997), [37.0]])
    exact = np.array([math.log(x) for x in u])
    assert np.all(np.abs(log(u) - exact) <= 4 * np.spacing(np.abs(exact)))


def test_gumbel_moments_and_bounds() -> None:
    draws = Noise(5).gumbel(0, np.arange(400_000, dtype=np.uint64))
    assert stats.kstest(draws, "gumbel_r").pvalue > 1e-4
    assert np.abs(draws).max() < LARGEST_GUMBEL


def test_noise_depends_on_every_counter() -> None:
    tokens = np.arange(64, dtype=np.uint64)
    rows = [Noise(seed, sample).gumbel(t, tokens) for seed in (1, 2, 2**63) for sample in (0, 1) for t in (0, 1)]
    values = np.concatenate(rows)
    assert len(np.unique(values)) == len(values)
    assert np.array_equal(Noise(1).gumbel(7, tokens[10:20]), Noise(1).gumbel(7, tokens)[10:20])


def test_purposes_do_not_share_draws() -> None:
    uniforms = {p: Noise(3)._uniform(p, 9, 2) for p in (Purpose.DRAFT, Purpose.ACCEPT, Purpose.CORRECT)}
    assert len(set(uniforms.values())) == 3


@pytest.mark.slow
def test_seeded_plain_sampling_over_seeds_has_the_right_joint_law() -> None:
    """Chi-square over 8,000 seeds on the joint of two positions; also between the samples of one seed."""
    road = Road(SamplingParams(), 1)
    first, second = np.array([0.5, 1.5, -0.3, 0.0], np.float32), np.array([-1.0, 0.2, 0.9, 0.4], np.float32)
    p = np.outer(road.probabilities(first, [0]), road.probabilities(second, [0, 0])).ravel()
    noises = [Noise(seed, sample) for sample in (0, 1) for seed in range(8_000)]
    a = np.array([road.choose(first, [0], noise) for noise in noises])
    after = [road.choose(second, [0, 0], noise) for noise in noises[:8_000]]
    cells = np.bincount(4 * a[:8_000] + after, minlength=16)
    assert stats.chisquare(cells, p * cells.sum()).pvalue > 1e-4
    table = np.zeros((4, 4))
    np.add.at(table, (a[:8_000], a[8_000:]), 1)
    assert stats.chi2_contingency(table).pvalue > 1e-4


def test_pick_never_returns_a_token_without_weight() -> None:
    weights = np.array([0.0, 1e-300, 0.0, 3.0, 0.0])
    picked = {Noise(seed).pick(Purpose.CORRECT, 1, 0, weights) for seed in range(300)}
    assert picked <= {1, 3}
