from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sooner.plan.cost import DrafterCost, Prices
from sooner.plan.policy import MARGIN, Choice, Option, Terms, choose
from sooner.plan.worth import Forecast, Own

FREE = DrafterCost(0.0)
PLAIN = 0.010


def line(slope: float) -> list[float]:
    return [slope * m for m in range(200)]


def pick(offers: Sequence[Sequence[Option]], added: Sequence[float], pace: float | None = None) -> Choice:
    """added: seconds by drafted rows. pace: tokens a second, plain decoding's where it is left out."""
    pace = len(offers) / PLAIN if pace is None else pace
    return choose(offers, Terms(Prices(lambda most: [*added[: most + 1]]), PLAIN, pace))


def option(*survival: float, name: str = "a", cost: DrafterCost = FREE, **fields: float) -> Option:
    return Option(name, cost, Forecast(list(survival), [], Own()), **fields)


def test_rows_are_drafted_as_long_as_each_pays() -> None:
    choice = pick([[option(0.9, 0.6, 0.3, 0.1)]], line(0.002))  # a row costs 0.2 tokens
    assert choice.rows == [3]
    assert choice.gain == pytest.approx(0.9 + 0.6 + 0.3 - 3 * 0.2)
    assert choice.extra_s == pytest.approx(0.006)


def test_nothing_is_drafted_where_nothing_pays() -> None:
    assert pick([[option(0.19, 0.1)]], line(0.002)).rows == [0]
    assert pick([[]], line(0.002)).rows == [0]


def test_a_row_that_does_not_pay_alone_may_pay_with_the_next() -> None:
    steps = [0.0, 0.008, 0.008, 0.008, *line(0.1)[1:]]
    assert pick([[option(0.6, 0.5, 0.4)]], steps).rows == [3]
    assert pick([[option(0.6, 0.1, 0.05)]], steps).rows == [0]


def test_the_likeliest_tokens_of_the_batch_get_the_rows() -> None:
    offers = [[option(0.9, 0.8, 0.7)], [option(0.5, 0.1)], [option(0.95)], []]
    choice = pick(offers, [0.0, 0.001, 0.002, 0.003, 0.004, *line(0.1)[1:]])
    assert choice.rows == [3, 0, 1, 0]
    assert choice.options[1] is None and choice.options[3] is None


def test_under_load_fewer_rows_pay() -> None:
    one = pick([[option(0.9, 0.7, 0.5)]], line(0.003))
    many = pick([[option(0.9, 0.7, 0.5)]] * 16, line(0.003), pace=16 / 0.060)
    assert one.rows == [3]
    assert many.rows == [1] * 16


def test_the_better_drafter_is_taken_for_each_sequence() -> None:
    offers = [
        [option(0.5), option(0.8, 0.7, name="b")],
        [option(0.9, 0.8), option(0.6, name="b")],
    ]
    choice = pick(offers, line(0.0005))
    assert [o.drafter for o in choice.options if o] == ["b", "a"]


def test_a_costly_drafter_is_taken_only_where_its_whole_call_pays() -> None:
    slow = DrafterCost(call=0.004, step=0.002, sequence=0.0002)
    good = option(0.8, 0.7, 0.6, name="model", cost=slow)
    assert pick([[good]], line(0.0005)).rows == [3]
    assert pick([[option(0.35, name="model", cost=slow)]], line(0.0005)).rows == [0]
    crowd = pick([[option(0.7, name="model", cost=slow)]] * 8, line(0.0001))
    assert crowd.rows == [1] * 8  # one call for all of them


def test_a_drafter_as_slow_as_the_target_never_drafts() -> None:
    same = DrafterCost(call=PLAIN, step=PLAIN, sequence=0.001, catch_up=0.001)
    assert pick([[option(*[1.0] * 16, name="model", cost=same)]], line(0.0005)).rows == [0]


def test_one_that_is_behind_pays_for_reading_by_the_rounds_it_will_serve() -> None:
    reading = {"reading_s": 0.1, "cost": DrafterCost(0.0005, catch_up=0.001)}
    assert pick([[option(0.9, 0.8, rounds=100, **reading)]], line(0.0005)).rows == [2]  # type: ignore[arg-type]
    assert pick([[option(0.9, 0.8, rounds=4, **reading)]], line(0.0005)).rows == [0]  # type: ignore[arg-type]


def test_tokens_that_cost_much_to_choose_are_worth_less() -> None:
    assert pick([[option(0.3)]], line(0.002)).rows == [1]
    assert pick([[option(0.3, token_s=0.005)]], line(0.002)).rows == [0]
    assert pick([[option(0.3, row_s=0.002)]], line(0.002)).rows == [0]


chains = st.lists(st.floats(0.05, 1.0), min_size=1, max_size=3).map(lambda c: sorted(c, reverse=True))


@given(offers=st.lists(chains, min_size=1, max_size=3), steps=st.lists(st.floats(1e-4, 8e-3), min_size=16, max_size=16))
def test_no_other_lengths_gain_more(offers: list[list[float]], steps: list[float]) -> None:
    """Against every combination of lengths, on any curve whose cheapest rows the policy can see."""
    added = [sum(steps[:m]) for m in range(17)]
    pace = len(offers) / PLAIN

    def gain(rows: Sequence[int]) -> float:
        return sum(sum(chain[:count]) for chain, count in zip(offers, rows)) - pace * added[sum(rows)]

    choice = pick([[option(*chain)] for chain in offers], added)
    floor = pace * min(added[m] / m for m in range(1, 9))
    worthy = [[chance for chance in chain if chance > floor] for chain in offers]
    best = max(gain(rows) for rows in product(*(range(len(chain) + 1) for chain in worthy)))
    assert gain(choice.rows) >= best - MARGIN * len(offers) - 1e-9
    assert gain(choice.rows) == pytest.approx(choice.gain)
