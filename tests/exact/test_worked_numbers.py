"""The worked numbers of the texts that the project was made from, digit by digit."""

import numpy as np
import pytest

from sooner.certify.laws import Enumerator, law
from sooner.plan.formulas import acceptance_rate, best_length, ceiling, expected_tokens, seconds_per_token, speedup
from sooner.plan.formulas import total_variation as distance
from sooner.sampling.draws import RoundDraws
from sooner.types import Distribution, Draft
from sooner.verify.rejection import rejection


def array(*values: float) -> Distribution:
    return np.array(values)


@pytest.mark.parametrize(
    ("p", "q", "acceptance", "accepted", "residual"),
    [
        ((0.4, 0.6), (0.8, 0.2), (0.5, 1), (0.4, 0.2), (0, 1)),
        ((0.6, 0.3, 0.1), (0.2, 0.5, 0.3), (1, 0.6, 1 / 3), (0.2, 0.3, 0.1), (1, 0, 0)),
        ((0.3, 0.7), (0.6, 0.4), (0.5, 1), (0.3, 0.4), (0, 1)),
        ((0.0, 0.3, 0.7), (0.5, 0.5, 0.0), (0, 0.6, None), (0, 0.3, 0), (0, 0, 1)),
    ],
)
def test_one_position(
    p: tuple[float, ...],
    q: tuple[float, ...],
    acceptance: tuple[float | None, ...],
    accepted: tuple[float, ...],
    residual: tuple[float, ...],
) -> None:
    """Plays the rule over every path: accepted mass by token, what corrections are drawn from, and the output."""

    def play(source: Enumerator) -> tuple[str, int]:
        draws = RoundDraws(source, 1)
        drafted = draws.draft(0, array(*q))
        draft = Draft.chain([drafted], [array(*q)])
        verdict = rejection(draft, lambda node: array(*p), draws)
        return ("accepted", drafted) if verdict.path else ("correction", verdict.last_token)

    outcome = law(play)
    kept = [outcome.get(("accepted", token), 0.0) for token in range(len(p))]
    corrected = np.array([outcome.get(("correction", token), 0.0) for token in range(len(p))])
    assert kept == pytest.approx(accepted, abs=1e-12)
    for token, wanted in enumerate(acceptance):
        assert wanted is None or kept[token] / q[token] == pytest.approx(wanted, abs=1e-12)
    assert corrected / corrected.sum() == pytest.approx(np.array(residual), abs=1e-12)
    assert kept + corrected == pytest.approx(array(*p), abs=1e-12)


def test_the_acceptance_rate_is_a_distance() -> None:
    p, q = array(0.30, 0.25, 0.20, 0.15, 0.07, 0.03), array(0.10, 0.10, 0.30, 0.30, 0.15, 0.05)
    assert acceptance_rate(p, q) == pytest.approx(0.65, abs=1e-12)
    assert 1 - distance(p, q) == pytest.approx(0.65, abs=1e-12)


def test_two_tokens_of_a_two_state_chain() -> None:
    chain = np.array([[0.8, 0.2], [0.3, 0.7]])
    flat = array(0.5, 0.5)

    def play(source: Enumerator) -> tuple[int, ...]:
        draws = RoundDraws(source, 1)
        draft = Draft.chain([draws.draft(0, flat), draws.draft(1, flat)], [flat, flat])
        verdict = rejection(draft, lambda node: chain[draft.tokens[node] if node >= 0 else 0], draws)
        tokens = verdict.tokens(draft)
        if len(tokens) == 1:
            tokens.append(RoundDraws(source, 2).choose(chain[tokens[0]]))
        return tuple(tokens[:2])

    joint = law(play)
    assert [joint[pair] for pair in ((0, 0), (0, 1), (1, 0), (1, 1))] == pytest.approx([0.64, 0.16, 0.06, 0.14])


@pytest.mark.parametrize(
    ("alpha", "tokens"),
    [
        (0.5, {1: 1.5, 4: 1.9375, 8: 1.9961}),
        (0.7, {1: 1.7, 4: 2.7731, 8: 3.1988}),
        (0.9, {1: 1.9, 4: 4.0951, 8: 6.1258}),
    ],
)
def test_expected_tokens(alpha: float, tokens: dict[int, float]) -> None:
    assert {k: round(expected_tokens(alpha, k), 4) for k in tokens} == tokens


@pytest.mark.parametrize(
    ("alpha", "length", "gain", "limit"),
    [(0.5, 2, 1.46, 2.0), (0.6, 3, 1.67, 2.5), (0.7, 4, 1.98, 3.3), (0.8, 6, 2.47, 5.0), (0.9, 10, 3.43, 10.0)],
)
def test_best_length_at_a_draft_cost_of_a_tenth(alpha: float, length: int, gain: float, limit: float) -> None:
    assert best_length(alpha, 0.1) == length
    assert round(speedup(alpha, length, 0.1), 2) == gain
    assert round(ceiling(alpha), 1) == limit


def test_cost_of_a_useful_token() -> None:
    assert seconds_per_token(0.016, 3.2) == pytest.approx(0.005)
    assert round(seconds_per_token(0.016, 1.2) * 1000, 1) == 13.3
    assert seconds_per_token(0.020, 2) > 0.008 > seconds_per_token(0.020, 4)


def test_all_accepted_is_k_plus_one() -> None:
    assert expected_tokens(1.0, 5) == 6.0
    assert ceiling(1.0) == float("inf")
