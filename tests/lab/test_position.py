"""Closed forms of one position against the enumerator, which plays every path of random answers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sooner.certify.laws import Enumerator, law
from sooner.errors import InputError
from sooner.lab import WRONG_RULES, Case, Position, agreement, draw, draw_coupled, error
from sooner.lab.position import distribution, normalised
from sooner.lab.wrong import EPSILON, LIKELY, LOW_Q, typical_errors
from sooner.plan.formulas import total_variation
from sooner.sampling.noise import Purpose
from sooner.types import SamplingParams

P6, Q6 = [0.30, 0.25, 0.20, 0.15, 0.07, 0.03], [0.10, 0.10, 0.30, 0.30, 0.15, 0.05]
ROADS = [
    SamplingParams(),
    SamplingParams(temperature=0.6),
    SamplingParams(temperature=1.7, top_k=3),
    SamplingParams(temperature=0.8, top_k=4, top_p=0.85),
]


def pairs(count: int) -> list[tuple[list[float], list[float]]]:
    rng = np.random.default_rng(3)
    sizes = rng.integers(3, 7, count)
    return [(rng.dirichlet(np.ones(n)).tolist(), rng.dirichlet(np.ones(n)).tolist()) for n in sizes]


@pytest.mark.parametrize(
    ("p", "q", "acceptance", "accepted", "residual"),
    [
        ([0.4, 0.6], [0.8, 0.2], [0.5, 1], [0.4, 0.2], [0, 1]),
        ([0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [1, 0.6, 1 / 3], [0.2, 0.3, 0.1], [1, 0, 0]),
        ([0.3, 0.7], [0.6, 0.4], [0.5, 1], [0.3, 0.4], [0, 1]),
        ([0.0, 0.3, 0.7], [0.5, 0.5, 0.0], [0, 0.6, np.nan], [0, 0.3, 0], [0, 0, 1]),
    ],
)
def test_the_worked_examples(
    p: list[float], q: list[float], acceptance: list[float], accepted: list[float], residual: list[float]
) -> None:
    here = Position.of(p, q)
    assert here.acceptance == pytest.approx(np.array(acceptance), abs=1e-12, nan_ok=True)
    assert here.accepted == pytest.approx(np.array(accepted), abs=1e-12)
    assert here.residual == pytest.approx(np.array(residual), abs=1e-12)
    assert here.output == pytest.approx(np.array(p), abs=1e-12)


def test_the_one_step_experiment() -> None:
    """Acceptance .65 = sum of min(p, q) = 1 - TV, and the output is p, within four standard errors."""
    here = Position.of(P6, Q6)
    assert here.rate == pytest.approx(0.65, abs=1e-12)
    assert 1.0 - total_variation(here.p, here.q) == pytest.approx(0.65, abs=1e-12)
    drawn = draw(here, 500_000, seed=0)
    assert abs(drawn.rate - 0.65) < 4 * drawn.error(0.65)
    assert drawn.error(0.65) < 0.0007
    assert all(abs(f - p) < 4 * drawn.error(p) for f, p in zip(drawn.frequencies, here.p))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=8), st.sampled_from(ROADS))
def test_the_output_is_p_on_every_road(weights: list[tuple[float, float]], road: SamplingParams) -> None:
    p, q = ([pair[i] + 1e-6 for pair in weights] for i in (0, 1))
    here = Position.of(p, q, road)
    assert here.output == pytest.approx(here.p, abs=1e-12)
    assert here.rate == pytest.approx(1.0 - total_variation(here.p, here.q), abs=1e-12)
    agree = agreement(here)
    assert agree.shared_noise_bound - 1e-12 <= agree.shared_noise <= agree.rejection + 1e-12


def test_shared_noise_is_drawn_as_often_as_its_closed_form_says() -> None:
    here = Position.of(P6, Q6)
    drawn = draw_coupled(here, 400_000, seed=1)
    agree = agreement(here)
    assert abs(drawn.rate - agree.shared_noise) < 4 * drawn.error(agree.shared_noise)
    assert all(abs(f - p) < 4 * drawn.error(p) for f, p in zip(drawn.frequencies, here.p))


Play = Callable[[Case, Enumerator], int]


def program(keep: Callable[[Case, int], float], correct: Callable[[Case], np.ndarray], stream: int = 1) -> Play:
    """Draws from q, keeps with a chance, else corrects; stream 0 is the draft's own random number."""

    def play(case: Case, source: Enumerator) -> int:
        drafted = source.pick(Purpose.DRAFT, 0, 0, case.here.q)
        if source.below(Purpose.ACCEPT, 0, 0, keep(case, drafted)):
            return drafted
        return source.pick(Purpose.DRAFT, 0, stream, correct(case))

    return play


def ratio(case: Case, token: int) -> float:
    return float(min(1.0, case.here.p[token] / case.here.q[token]))


def residual(case: Case) -> np.ndarray:
    return np.maximum(case.here.p - case.here.q, 0.0)


def play_likeliest(case: Case, source: Enumerator) -> int:
    token = int(case.here.q.argmax())
    kept = source.below(Purpose.ACCEPT, 0, 0, ratio(case, token))
    return token if kept else source.pick(Purpose.CORRECT, 0, 0, residual(case))


def play_drop(case: Case, source: Enumerator) -> int:
    drafted = source.pick(Purpose.DRAFT, 0, 0, case.here.q)
    if case.here.q[drafted] < LOW_Q:
        return source.pick(Purpose.CORRECT, 0, 0, case.here.p)
    if source.below(Purpose.ACCEPT, 0, 0, ratio(case, drafted)):
        return drafted
    return source.pick(Purpose.CORRECT, 0, 0, residual(case))


PLAYS: dict[str, Play] = {
    "from_p": program(ratio, lambda case: case.here.p),
    "likeliest": play_likeliest,
    "likely": program(
        lambda case, token: float(case.here.p[token] >= LIKELY * case.here.p.max()), lambda case: case.here.p
    ),
    "cold_residual": program(ratio, lambda case: np.maximum(case.cold.p - case.cold.q, 0.0)),
    "drop_low": play_drop,
    "wide_ratio": program(
        lambda case, token: float(min(1.0, case.here.p[token] / case.wide_q[token])),
        lambda case: np.maximum(case.here.p - case.wide_q, 0.0),
    ),
    "same_stream": program(ratio, residual, stream=0),
    "epsilon": program(ratio, lambda case: normalised(residual(case)) + EPSILON / residual(case).sum()),
}


@pytest.mark.parametrize("key", PLAYS)
def test_wrong_rules_put_out_what_their_formula_says(key: str) -> None:
    rule = next(rule for rule in WRONG_RULES if rule.key == key)
    errors = []
    for p, q in pairs(12):
        for road in ROADS:
            case = Case.of(p, q, road)
            played = law(lambda source, case=case: PLAYS[key](case, source))  # type: ignore[misc]
            wanted = np.array([played.get(token, 0.0) for token in range(len(p))])
            assert rule.output(case) == pytest.approx(wanted, abs=1e-12)
            errors.append(error(case, rule))
    assert max(errors) > 0.02, "a wrong rule that does nothing wrong teaches nothing"


def test_each_wrong_rule_is_typically_wrong() -> None:
    errors = typical_errors(pairs=200, seed=1)
    assert set(errors) == {rule.key for rule in WRONG_RULES}
    assert min(errors.values()) > 0.01


def test_drawing_again_is_the_accepted_mass_alone() -> None:
    case = Case.of(P6, Q6, SamplingParams())
    again = next(rule for rule in WRONG_RULES if rule.key == "draw_again")
    assert again.output(case) == pytest.approx(np.minimum(P6, Q6) / 0.65, abs=1e-12)
    apart = Case.of([1.0, 0.0], [0.0, 1.0], SamplingParams())
    assert np.isnan(again.output(apart)).all()


def test_one_stream_for_draft_and_correction() -> None:
    """Only token 0 is rejected, by numbers below .6; the residual gives token 1 to all below 2/3. Token 2 gets none."""
    case = Case.of([0.3, 0.4, 0.3], [0.6, 0.2, 0.2], SamplingParams())
    stream = next(rule for rule in WRONG_RULES if rule.key == "same_stream")
    assert stream.output(case) == pytest.approx(np.array([0.3, 0.5, 0.2]), abs=1e-12)


@pytest.mark.parametrize(
    ("p", "q", "message"),
    [
        ([1.0], [1.0], "between 2 and 64"),
        ([0.5, 0.5], [0.5, 0.3, 0.2], "as many"),
        ([0.5, -0.5], [0.5, 0.5], "at least 0"),
        ([0.0, 0.0], [0.5, 0.5], "not all 0"),
        ([float("nan"), 1.0], [0.5, 0.5], "finite"),
    ],
)
def test_what_is_no_distribution_is_refused(p: list[float], q: list[float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Position.of(p, q)


def test_the_road_is_the_engines() -> None:
    """top-k 2 of (.5, .3, .2) at temperature .5: squares of what is left, normalised."""
    params = SamplingParams(temperature=0.5, top_k=2)
    assert distribution([0.5, 0.3, 0.2], params) == pytest.approx(np.array([0.25, 0.09, 0.0]) / 0.34, abs=1e-12)
