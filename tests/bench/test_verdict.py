from __future__ import annotations

from sooner.bench.verdict import judge
from sooner.plan.replay import Replay
from tests.plan.test_replay import COSTS, recorded


def test_a_verdict_for_each_load_with_an_interval_around_its_speedup() -> None:
    answers = [recorded(2, number=i) for i in range(4)]
    result = judge(Replay(COSTS, "greedy"), answers, ["oracle"], [1, 64], seed=0)
    one, many = (next(c for c in result["cells"] if c["concurrency"] == load) for load in (1, 64))
    assert one["prompts"] == many["prompts"] == 4
    assert one["interval"][0] < one["speedup"] < one["interval"][1] and one["speedup"] > 1.3
    assert one["best_fixed"]["tokens"] == 2
    assert one["foresight"] >= one["best_fixed"]["speedup"] and one["foresight"] > one["speedup"]
    assert many["speedup"] < one["speedup"] and many["break_even"][4] > one["break_even"][4]
    assert "use --draft-tokens auto" in result["verdict"][0] and "64 requests" in result["verdict"][1]
