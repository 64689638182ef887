from __future__ import annotations

import json
import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sooner.plan.cost import COLDER, SETTLED, CostTable, DrafterCost, LiveCosts, not_falling, roofline

TABLE = CostTable(
    rows=(1, 2, 4, 8, 16),
    seconds=(0.010, 0.011, 0.012, 0.020, 0.040),
    head=0.25,
    key=1e-6,
    row_key=2e-6,
    drafters={"model": DrafterCost(0.003, 0.002, 0.001, 0.0001)},
)


def test_products_lie_on_the_table_between_its_rows_and_beyond() -> None:
    assert [TABLE.products(rows) for rows in (0, 1, 3, 6, 16)] == pytest.approx([0.0, 0.010, 0.0115, 0.016, 0.040])
    assert TABLE.products(32) == pytest.approx(0.080)  # as steep as the last measured stretch


def test_a_pass_pays_the_head_only_for_rows_with_logits() -> None:
    costs = LiveCosts(TABLE)
    assert costs.pass_seconds(8, 8, 0, 0) == pytest.approx(0.020)
    assert costs.pass_seconds(8, 0, 0, 0) == pytest.approx(0.015)
    assert costs.pass_seconds(1, 1, 1000, 1000) == pytest.approx(0.013)
    assert costs.added_seconds(1, 1, 3) == pytest.approx([0.0, 0.001, 0.0015, 0.002])


def test_added_seconds_go_on_beyond_the_longest_pass_of_the_table() -> None:
    costs = LiveCosts(TABLE)
    added = costs.added_seconds(510, 2, 8)
    assert added == pytest.approx([0.75 * 0.0025 * m + 0.25 * (TABLE.products(2 + m) - 0.011) for m in range(9)])


def test_a_table_survives_json() -> None:
    assert CostTable.from_dict(json.loads(json.dumps(TABLE.as_dict()))) == TABLE


def test_a_drafter_costs_calls_steps_sequences_and_reading() -> None:
    cost = TABLE.drafters["model"]
    assert cost.seconds(1, 1, 0) == pytest.approx(0.003)
    assert cost.seconds(3, 4, 10) == pytest.approx(0.003 + 3 * 0.002 + 2 * 4 * 0.001 + 10 * 0.0001)


def test_roofline_reads_for_few_rows_and_computes_for_many() -> None:
    table = roofline(weight_bytes=100_000_000, multiply_adds=100_000_000, head=0.2, threads=2)
    assert not table.measured
    assert table.products(2) < 1.1 * table.products(1)
    assert table.products(512) == pytest.approx(4 * table.products(128), rel=0.03)


def play(costs: LiveCosts, truth: CostTable, rows: list[int], noise: float, seed: int = 0) -> None:
    rng = random.Random(seed)
    for count in rows:
        seconds = truth.products(count) * rng.lognormvariate(0.0, noise) * (5.0 if rng.random() < 0.02 else 1.0)
        costs.learn_pass(costs.pass_seconds(count, count, 0, 0), seconds, count)


def test_live_rounds_follow_a_machine_that_became_slower_without_changing_the_shape() -> None:
    costs = LiveCosts(TABLE)
    slow = replace(TABLE, seconds=tuple(2 * s for s in TABLE.seconds))
    play(costs, slow, [1, 1, 2, 4] * 30, noise=0.1)
    assert costs.products(1) == pytest.approx(0.020, rel=0.15)
    assert costs.products(8) / costs.products(1) == pytest.approx(2.0, rel=0.15)
    assert not costs.stale


def test_live_rounds_mend_a_prior_in_spite_of_noise_and_outliers() -> None:
    costs = LiveCosts(roofline(300_000_000, 30_000_000, 0.25, 2))
    play(costs, TABLE, [1, 2, 4, 8] * 60, noise=0.1)
    for rows in (1, 2, 4, 8):
        assert costs.products(rows) == pytest.approx(TABLE.products(rows), rel=0.2)


def test_a_table_of_another_machine_is_noticed_once() -> None:
    costs = LiveCosts(TABLE)
    steep = replace(TABLE, seconds=(0.010, 0.020, 0.040, 0.080, 0.160))
    play(costs, steep, [1, 2, 4] * 4 * SETTLED, noise=0.05)
    assert costs.stale and costs.newly_stale() and not costs.newly_stale()


def test_a_drafter_that_became_slower_is_believed() -> None:
    costs = LiveCosts(TABLE)
    for _ in range(60):
        costs.learn_draft("model", 1, 3, 0, 2 * TABLE.drafters["model"].seconds(1, 3, 0))
        costs.learn_draft("new", 2, 2, 0, 0.004)
    assert costs.drafter("model").call == pytest.approx(0.006, rel=0.05)
    assert costs.drafter("new").seconds(2, 2, 0) == pytest.approx(0.004)
    assert costs.drafter("unheard of").seconds(4, 4, 100) == 0.0


@given(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=12))
def test_not_falling_never_falls_and_keeps_the_mean(values: list[float]) -> None:
    fitted = not_falling(values)
    assert all(a <= b + 1e-12 for a, b in pairwise(fitted))
    assert sum(fitted) == pytest.approx(sum(values))
    assert sorted(values) != values or fitted == pytest.approx(values)


def test_a_round_that_asks_costs_more_than_its_answers_do() -> None:
    costs = LiveCosts(TABLE)
    for _ in range(50):
        costs.learn_planning(0, 40e-6)
        for asks in (2, 32):
            costs.learn_planning(asks, 40e-6 + (6 + asks) * 15e-6)
    assert costs.planning.value == pytest.approx(40e-6)
    unit = COLDER * 15e-6
    asking = [costs.asking_seconds(asks) for asks in (0, 2, 32)]
    assert asking == pytest.approx([0.0, 40e-6 + 8 * unit, 40e-6 + 38 * unit])
