"""Whole sequences: the published experiment, exactly and by simulation, and where its shortfall comes from."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from sooner.errors import InputError
from sooner.lab import chain
from sooner.lab.chain import Pair, published_pair
from sooner.plan.formulas import expected_tokens


def test_the_published_experiment_digit_by_digit() -> None:
    """0.3022 0.1299 0.1285 0.1209 0.3185 and 3.54 tokens a call, 72% saved, were published, with an error of 0.0002."""
    pair = published_pair()
    exact = chain.frequencies(pair, 64)
    assert np.abs(exact - [0.3022, 0.1299, 0.1285, 0.1209, 0.3185]).max() < 0.0004
    calls = chain.expected_calls(pair, 4, 64)
    assert round(64 / calls, 2) == 3.54
    assert round(100 * (1 - calls / 64)) == 72


def test_the_simulation_finds_what_is_exact() -> None:
    pair = published_pair()
    run = chain.simulate(pair, sequences=30_000, seed=4)
    exact = chain.frequencies(pair, 64)
    assert (np.abs(run.plain - exact) < 4.5 * run.plain_error).all()
    assert (np.abs(run.speculative - exact) < 4.5 * run.speculative_error).all()
    wanted = 64 / chain.expected_calls(pair, 4, 64)
    assert abs(run.tokens_per_call - wanted) < 4 * run.tokens_per_call_error
    assert run.tokens_per_call_error < 0.003


def test_why_it_is_less_than_the_formula() -> None:
    """Most of the gap is the last round, which is cut; contexts take little here, and much where they last."""
    steps = chain.shortfall(published_pair(), 4, 64)
    assert steps.real_rows_with_end < steps.formula_with_end < steps.formula
    assert steps.formula - steps.formula_with_end > 10 * (steps.formula_with_end - steps.real_rows_with_end)
    assert abs(steps.real_rows - steps.formula) < 0.005
    moody = chain.shortfall(chain.moody_pair(), 4, 64)
    assert moody.real_rows < 0.92 * moody.formula


def test_expected_calls_by_enumeration() -> None:
    """Every way in which rounds can go, for five tokens with drafts of two."""
    pair = chain.blurred(chain.random_target(3, 5), 0.5)

    def calls(last: int, left: int) -> float:
        total = 1.0
        for first in range(3):
            total += pair.missing[last, first] * (calls(first, left - 1) if left > 1 else 0.0)
            if left == 1:
                continue
            for second in range(3):
                both = pair.both[last, first]
                rest = calls(second, left - 2) if left > 2 else 0.0
                total += both * pair.missing[first, second] * rest
                for third in range(3):
                    if left > 2:
                        bonus = both * pair.both[first, second] * pair.P[second, third]
                        total += bonus * (calls(third, left - 3) if left > 3 else 0.0)
        return total

    assert chain.expected_calls(pair, 2, 5) == pytest.approx(calls(0, 5), abs=1e-12)


def test_equal_rows_are_the_formula() -> None:
    alpha, k = 0.7, 4
    pair = Pair(np.array([[1.0, 0.0]] * 2), np.array([[alpha, 1 - alpha]] * 2))
    assert chain.tokens_a_round(pair, k) == pytest.approx(expected_tokens(alpha, k), abs=1e-12)
    assert chain.endless(pair, k) == pytest.approx(expected_tokens(alpha, k), abs=1e-12)
    assert chain.single_rate(alpha, k, 4000) == pytest.approx(expected_tokens(alpha, k), abs=2e-3)


def test_two_tokens_of_a_two_state_chain() -> None:
    pair = Pair(np.array([[0.8, 0.2], [0.3, 0.7]]), np.full((2, 2), 0.5))
    rng = np.random.default_rng(0)
    tokens, _ = chain._speculative(pair, 3, 2, 200_000, rng)
    joint = np.bincount(2 * tokens[:, 0] + tokens[:, 1]) / len(tokens)
    assert np.abs(joint - [0.64, 0.16, 0.06, 0.14]).max() < 4 * np.sqrt(0.64 * 0.36 / 200_000)


def test_draft_equal_to_target_and_no_draft() -> None:
    same = chain.blurred(chain.random_target(4, 1), 0.0)
    assert chain.simulate(same, k=3, length=16, sequences=50).calls.tolist() == [4] * 50
    assert chain.simulate(same, k=0, length=16, sequences=50).calls.tolist() == [16] * 50
    assert chain.expected_calls(same, 3, 16) == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"k": 65}, "draft length"), ({"length": 1}, "length"), ({"sequences": 1}, "sequences")],
)
def test_limits(wrong: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        chain.simulate(published_pair(), **wrong)


def test_rows_are_distributions() -> None:
    for pair, matrix in product((published_pair(), chain.moody_pair()), ("P", "Q")):
        assert getattr(pair, matrix).sum(axis=1) == pytest.approx(1.0, abs=1e-12)
