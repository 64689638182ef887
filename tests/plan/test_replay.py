from __future__ import annotations

import pytest

from sooner.plan.cost import CostTable, DrafterCost, LiveCosts
from sooner.plan.replay import PLAIN, Offer, Recorded, Replay, Setting, break_even

COSTS = LiveCosts(
    CostTable((1, 2, 4, 64), (0.010, 0.011, 0.013, 0.073), head=0.25, drafters={"oracle": DrafterCost(0.001, 0.0005)})
)
LENGTH = 25


def recorded(right: int, proposed: int = 16, name: str = "oracle", number: int = 0) -> Recorded:
    """An answer at every position of which `right` of the `proposed` tokens would be accepted."""
    offers = [
        {name: Offer(min(proposed, LENGTH - i), min(right, LENGTH - i), None)} if i else {} for i in range(LENGTH)
    ]
    return Recorded(f"p{number}", "all", 10, LENGTH, tuple(offers))


def seconds(right: int, setting: Setting, concurrency: int = 1, answers: int = 1) -> float:
    played = Replay(COSTS, "greedy", concurrency).play([recorded(right, number=i) for i in range(answers)], setting)
    assert all(one.done == LENGTH and one.rounds + one.accepted == LENGTH - 1 for one in played)
    return sum(one.seconds for one in played)


def test_plain_rounds_take_plain_passes() -> None:
    assert seconds(0, PLAIN) == pytest.approx(24 * 0.010)


def test_a_drafter_that_is_always_right_takes_the_fewest_rounds() -> None:
    rounds = 24 / 4  # three drafted tokens and a bonus, 24 after the first
    assert seconds(3, Setting("oracle", 3)) == pytest.approx(rounds * (0.013 + 0.001 + 2 * 0.0005), rel=1e-6)


def test_a_useless_draft_costs_its_rows_and_its_drafting() -> None:
    assert seconds(0, Setting("oracle", 1)) == pytest.approx(23 * (0.011 + 0.001) + 0.010)  # the last round drafts none


def test_answers_in_flight_share_their_passes() -> None:
    four = seconds(0, PLAIN, concurrency=4, answers=4)
    assert four == pytest.approx(24 * 0.013)


def test_the_policy_is_near_the_better_of_drafting_and_not() -> None:
    policy = Setting(tokens=None, names=("oracle",))
    assert seconds(16, policy, answers=16) < 0.5 * seconds(16, PLAIN, answers=16)
    assert seconds(0, policy, answers=8) < 1.1 * seconds(0, PLAIN, answers=8)


def test_foresight_drafts_what_is_right_and_no_more() -> None:
    foresight = Setting(names=("oracle",), foresight=True)
    assert seconds(3, foresight) == pytest.approx(seconds(3, Setting("oracle", 3)))
    assert seconds(0, foresight) == pytest.approx(seconds(0, PLAIN))


def test_a_drafter_that_is_behind_reads_before_it_drafts() -> None:
    costs = LiveCosts(
        CostTable((1, 64), (0.010, 0.010), head=0.0, drafters={"oracle": DrafterCost(0.0, catch_up=0.001)})
    )
    [played] = Replay(costs, "greedy", behind=["oracle"]).play([recorded(3)], Setting("oracle", 3))
    assert played.seconds == pytest.approx(6 * 0.010 + 10 * 0.001)  # the prompt, once
    [lookup] = Replay(costs, "greedy").play([recorded(3)], Setting("oracle", 3))
    assert lookup.seconds == pytest.approx(6 * 0.010)  # read when it was asked


def test_the_policy_is_played_with_its_guard_and_its_probes() -> None:
    """Under costs that say a row is free the estimates alone would draft for ever."""
    [played] = Replay(COSTS, "greedy").play([recorded(0)], Setting(tokens=None, names=("oracle",)))
    assert 0 < played.drafted < 40


def test_break_even_is_the_share_at_which_a_round_takes_plain_time() -> None:
    share = break_even(COSTS, rows=3, sequences=1, choosing_s=0.0, draft_s=0.0)
    assert (1 + 3 * share) / 0.013 == pytest.approx(1 / 0.010)
