from __future__ import annotations

import random

from sooner.plan.guard import FEWEST, FIRST_REST, PLAIN_EVERY, Budget, Guard, Pace


def feed(guard: Guard, mean: float, rounds: int, seed: int = 0) -> int:
    """Rounds that save `mean` of a plain round on average, as scattered as real ones; how many were drafted."""
    rng = random.Random(seed)
    for played in range(rounds):
        if guard.rest:
            return played
        guard.learn(rng.gauss(mean, 0.6))
    return rounds


def test_a_loss_is_established_and_drafting_rests() -> None:
    guard = Guard()
    assert FEWEST <= feed(guard, -0.5, 200) < 60
    assert "rests" in guard.verdict()
    for _ in range(FIRST_REST):
        guard.plain_round()
    assert guard.verdict() == ""
    feed(guard, -0.5, 200)
    assert guard.rest == 2 * FIRST_REST  # the second time for longer


def test_a_gain_is_left_alone_whatever_its_scatter() -> None:
    assert all(feed(Guard(), 0.3, 2000, seed) == 2000 for seed in range(10))


def test_small_losses_are_found_too() -> None:
    assert feed(Guard(), -0.15, 3000) < 1000


def test_a_plain_round_is_played_now_and_then() -> None:
    guard = Guard()
    feed(guard, 0.5, PLAIN_EVERY)
    assert guard.verdict().startswith("calibrate")
    guard.plain_round()
    assert guard.verdict() == ""


def test_a_budget_spends_no_more_than_its_share() -> None:
    budget, spent = Budget(), 0.0
    for _ in range(10_000):
        budget.earn(0.01)
        if budget.covers(0.004):
            spent += 0.004
    assert 0.4 < spent < 0.521  # a share of 0.5% of 100 s, and what it began with


def test_pace_starts_at_plain_speed_and_follows_the_clock() -> None:
    pace = Pace()
    assert pace.value == 1.0
    for _ in range(400):
        pace.learn(3.0, 1.5)
    assert abs(pace.value - 2.0) < 0.1
