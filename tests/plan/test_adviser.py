from __future__ import annotations

import random

import pytest

from sooner.plan.adviser import Adviser, Seat, rounds_ahead
from sooner.plan.cost import CostTable, DrafterCost, LiveCosts
from sooner.plan.guard import ASK_EVERY, START_S
from sooner.plan.policy import MARGIN, Choice, Terms

PLAIN = 0.010
TABLE = CostTable((1, 64), (PLAIN, 0.0226), head=0.0, drafters={"slow": DrafterCost(0.0005, catch_up=0.001)})


def setting(*names: str) -> tuple[Adviser, Terms, list[Seat]]:
    adviser = Adviser(LiveCosts(TABLE), names)
    terms = adviser.terms(1, 1, PLAIN, adviser.begin(1, PLAIN))  # a row is worth 0.02 tokens
    return (
        adviser,
        terms,
        [Seat(name, "greedy", False, adviser.worth(name, False), adviser.uses[name]) for name in names],
    )


def advice(adviser: Adviser, terms: Terms, seat: Seat, estimate: list[float], unread: int = 0) -> Choice:
    option = adviser.option(terms, seat, estimate, 16, keys=100)
    if option:
        option.must_read(unread, rounds_ahead(200, done=20))
    return adviser.advise(terms, [[option] if option else []])


def test_what_pays_is_advised() -> None:
    adviser, terms, [seat] = setting("a")
    choice = advice(adviser, terms, seat, [0.8, 0.6, 0.01])
    assert choice.rows == [2] and not choice.probing
    assert advice(adviser, terms, seat, []).rows == [0]


def test_what_does_not_pay_is_probed_until_the_budget_is_spent() -> None:
    adviser, terms, [seat] = setting("a")
    probes = [advice(adviser, terms, seat, [0.001]) for _ in range(100)]
    survival = probes[0].options[0].survival[0]  # type: ignore[union-attr]
    lost = probes[0].extra_s - (survival - MARGIN) / terms.pace
    assert [probe.rows for probe in probes].count([1]) == pytest.approx(START_S / lost, abs=1.0)
    assert probes[-1].rows == [0]
    assert advice(adviser, terms, seat, [0.9]).rows == [1]


def test_reading_is_priced_by_the_rounds_in_which_it_will_be_of_use() -> None:
    adviser, terms, [seat] = setting("slow")
    assert advice(adviser, terms, seat, [0.9, 0.8]).rows == [2]
    assert advice(adviser, terms, seat, [0.9, 0.8], unread=1000).rows == [0]


def test_lost_time_makes_drafting_rest_and_slows_the_pace() -> None:
    adviser, _, _ = setting("a")
    rng = random.Random(0)
    for _ in range(60):
        adviser.learn(1.0, rng.gauss(1.5, 0.1), PLAIN, drafted=True, probing=False)
    assert "rests" in adviser.guard.verdict() and adviser.pace.value < 0.8


def test_a_probe_is_no_evidence_for_the_guard() -> None:
    adviser, _, _ = setting("a")
    for _ in range(60):
        adviser.learn(1.0, 1.5, PLAIN, drafted=True, probing=True)
    assert adviser.guard.verdict() == ""


def test_a_drafter_that_tells_nothing_new_is_asked_now_and_then() -> None:
    adviser, _, seats = setting("first", "same", "better")
    adviser.costs.asking.learn(0.0002)  # a fiftieth of a round
    asked = {seat.name: 0 for seat in seats}
    for _ in range(800):
        terms = adviser.terms(1, 1, PLAIN, adviser.begin(1, PLAIN))
        offers = []
        for seat, said in zip(seats, ([0.5], [0.5], [0.6])):
            if not seat.use.rests:
                asked[seat.name] += 1
                option = adviser.option(terms, seat, said, 16, keys=100)
                offers.append(option)
        adviser.advise(terms, [[option for option in offers if option]])
    assert asked["first"] == asked["better"] == 800
    assert 800 // ASK_EVERY <= asked["same"] < 100


def test_asking_is_not_worth_its_time_where_nothing_is_said() -> None:
    adviser, _, [seat] = setting("a")
    adviser.costs.asking.learn(0.00005)
    for _ in range(2000):
        terms = adviser.terms(1, 1, PLAIN, adviser.begin(1, PLAIN))
        if not seat.use.rests:
            advice(adviser, terms, seat, [])
    assert seat.use.gain < 0.005 and seat.use.rests
    while seat.use.rests:  # then the text begins to repeat itself
        terms = adviser.terms(1, 1, PLAIN, adviser.begin(1, PLAIN))
    advice(adviser, terms, seat, [0.9] * 8)
    adviser.terms(1, 1, PLAIN, adviser.begin(1, PLAIN))
    assert not seat.use.rests


def test_an_answer_alone_may_not_be_worth_what_a_round_of_planning_costs() -> None:
    """Each answer is worth its own time, 1% of a round; together they must pay for the six that planning costs too."""
    adviser, _, seats = setting("a")
    adviser.costs.asking.learn(0.01 * PLAIN)
    seats[0].use.gain = 0.02
    pace = adviser.begin(1, PLAIN)
    assert not seats[0].use.rests
    pays = [adviser.pays_to_ask([seats[0].use] * count, pace) for count in (0, 1, 5, 7)]
    assert pays == [False, False, False, True]
    while not adviser.all_asked:
        adviser.begin(1, PLAIN)
    assert adviser.pays_to_ask([seats[0].use], pace)


def test_what_hardly_pays_is_charged_as_a_probe() -> None:
    """A gain below the margin is not believed: it is played within the budget, not in every round."""
    adviser, _, [seat] = setting("a")
    adviser.costs.asking.learn(1e-9)
    terms = adviser.terms(1, 1, PLAIN, adviser.begin(1, PLAIN))
    option = adviser.option(terms, seat, [0.03], 16, keys=100)
    assert option and 0.0 < option.survival[0] - terms.pace * terms.row_s < MARGIN
    advised = [adviser.advise(terms, [[option]]) for _ in range(200)]
    assert all(choice.probing for choice in advised if any(choice.rows))
    assert 0 < sum(choice.rows[0] for choice in advised) <= START_S * terms.pace / MARGIN
