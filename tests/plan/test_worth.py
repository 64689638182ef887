from __future__ import annotations

import random
from itertools import accumulate
from operator import mul

import pytest

from sooner.plan.worth import HOPE, Own, Worth


def verdict(rng: random.Random, chances: list[float]) -> int:
    """How many tokens of a draft are accepted, of which each is with its chance."""
    return next((i for i, chance in enumerate(chances) if rng.random() >= chance), len(chances))


def play(worth: Worth, own: Own, said: list[float] | None, true: list[float], rounds: int, seed: int = 0) -> None:
    rng = random.Random(seed)
    for _ in range(rounds):
        estimate = None if said is None else list(accumulate(said, mul))
        forecast = worth.survival(own, estimate, len(true))
        forecast.learn(len(true), verdict(rng, true))


def test_before_anything_is_known_the_drafter_is_believed() -> None:
    said = [0.5, 0.4, 0.2]
    assert Worth().survival(Own(), said, 8).chances == pytest.approx(said)
    assert Worth().survival(Own(), None, 3).chances == pytest.approx([HOPE, HOPE**2, HOPE**3])
    assert Worth(sampled=True).survival(Own(), said, 1).chances[0] < 0.5


def test_a_forecast_ends_at_the_limit_at_the_least_chance_and_with_the_estimate() -> None:
    worth, said = Worth(), [0.9, 0.5, 0.1, 0.05]
    assert len(worth.survival(Own(), said, 3).chances) == 3
    assert len(worth.survival(Own(), said, 8, least=0.4).chances) == 3  # the first below is the last
    assert len(worth.survival(Own(), said, 8).chances) == 4
    assert worth.survival(Own(), [], 8).chances == []


def test_positions_are_learned_where_the_drafter_says_nothing() -> None:
    worth, true = Worth(), [0.9, 0.6, 0.3]
    play(worth, Own(), None, true, rounds=600)
    fresh = worth.survival(Own(), None, 3).chances
    assert fresh == pytest.approx(list(accumulate(true, mul)), abs=0.08)


def test_an_overconfident_drafter_is_corrected_for_all_sequences() -> None:
    worth = Worth()
    for seed in range(20):
        play(worth, Own(), [0.8, 0.9], [0.3, 0.5], rounds=15, seed=seed)
    first, both = worth.survival(Own(), [0.8, 0.72], 2).chances
    assert first == pytest.approx(0.3, abs=0.07)
    assert both / first == pytest.approx(0.5, abs=0.12)


def test_a_sequence_that_differs_from_the_others_is_judged_by_itself() -> None:
    worth, own, other = Worth(), Own(), Own()
    for seed in range(10):
        play(worth, other, [0.5], [0.5], rounds=20, seed=seed)
    play(worth, own, [0.5], [0.95], rounds=40)
    assert worth.survival(own, [0.5], 1).chances[0] > 0.7
    assert worth.survival(Own(), [0.5], 1).chances[0] < 0.65


def test_a_useless_drafter_is_given_up_within_a_few_rounds() -> None:
    worth, own = Worth(), Own()
    play(worth, own, None, [0.0], rounds=12)
    assert worth.survival(own, None, 1).chances[0] < 0.25


def test_old_verdicts_are_forgotten() -> None:
    worth = Worth()
    play(worth, Own(), [0.5], [1.0], rounds=2000)
    play(worth, Own(), [0.5], [0.0], rounds=900)
    assert worth.survival(Own(), [0.5], 1).chances[0] < 0.1
