"""The policy inside the engine: what it grants, what it learns, and that tokens never depend on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sooner.draft.ngram import NgramDrafter
from sooner.draft.protocol import Ask, Drafter
from sooner.draft.suffix import SuffixDrafter
from sooner.engine import calibrate
from sooner.engine.calibrate import Store, costs_for, drop_costs, identity, measure
from sooner.errors import InputError
from sooner.plan.cost import CostTable, DrafterCost, LiveCosts
from sooner.types import LONGEST_DRAFT, Request, RoundRecord, SamplingParams, Speculation
from tests.support.drafters import OracleDrafter, RandomDrafter, SamplingDrafter, Stateless
from tests.support.engines import VOCABULARY, engine, plain, request, run, tiny_decoder

GREEDY = SamplingParams(temperature=0.0, max_tokens=60)
CHEAP = CostTable(rows=(1, 64), seconds=(0.010, 0.012), head=0.2)
DEAR = CostTable(rows=(1, 64), seconds=(0.010, 0.640), head=0.2)  # a pass over two rows takes twice as long


def auto(prompt: Iterable[int], *drafters: str, params: SamplingParams = GREEDY, rule: str = "auto") -> Request:
    base = request(list(prompt), params)
    return replace(base, speculation=Speculation(drafters, "auto", rule))  # type: ignore[arg-type]


def kinds(records: list[RoundRecord]) -> list[str]:
    return [record.reason.partition(":")[0] for record in records]


def oracle(*requests: Request) -> OracleDrafter:
    return OracleDrafter({one.prompt: plain(one).tokens for one in requests})


class FreezeClock:
    """The clock of live rounds would correct the tables that these tests begin with: rounds here take what they say."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("learn_pass", "learn_choosing", "learn_draft"):
            monkeypatch.setattr(f"sooner.plan.cost.LiveCosts.{name}", lambda *_: None)
        monkeypatch.setattr("sooner.plan.cost.Level.learn", lambda *_: None)
        monkeypatch.setattr("sooner.plan.guard.Guard.learn", lambda *_: None)
        monkeypatch.setattr("sooner.plan.guard.Pace.learn", lambda *_: None)
        monkeypatch.setattr("sooner.plan.guard.Budget.earn", lambda *_: None)


@pytest.fixture
def _frozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    FreezeClock(monkeypatch)
    yield


@pytest.mark.usefixtures("_frozen")
def test_a_drafter_that_is_right_drafts_to_the_limit_where_rows_are_cheap() -> None:
    one = auto([3, 1, 4, 1, 5], "oracle")
    machine, records = engine({"oracle": oracle(one)}, costs=CHEAP)
    [answer] = run(machine, [one])
    assert answer.tokens == plain(one).tokens
    assert max(len(record.draft) for record in records) == LONGEST_DRAFT
    assert answer.stats.rounds < 15


@pytest.mark.usefixtures("_frozen")
def test_where_every_row_costs_a_pass_nothing_is_drafted() -> None:
    one = auto([3, 1, 4, 1, 5], "oracle")
    machine, records = engine({"oracle": oracle(one)}, costs=DEAR)
    [answer] = run(machine, [one])
    assert answer.stats.drafted < 6  # probes
    assert set(kinds(records)) <= {"prefill", "plain", "probe", "1 token to go"}
    assert all("oracle offers" in r.reason for r in records if r.reason.startswith("plain"))


@pytest.mark.usefixtures("_frozen")
def test_a_useless_drafter_is_given_up_and_only_probed() -> None:
    requests = [auto([i, 2, 3], "random") for i in range(8)]
    table = replace(CHEAP, seconds=(0.010, 0.080))
    machine, records = engine({"random": RandomDrafter(VOCABULARY)}, costs=table)
    for one in requests:
        run(machine, [one])
    late = [record for record in records if record.request_id in {one.id for one in requests[2:]}]
    assert sum(len(record.draft) for record in late) < 0.08 * len(late)


@pytest.mark.usefixtures("_frozen")
def test_where_asking_is_not_worth_its_time_most_rounds_ask_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def silent(_: SuffixDrafter, ask: Ask) -> Iterator[float]:
        asked.append(ask.key)
        return iter(())

    monkeypatch.setattr(SuffixDrafter, "estimate", silent)
    machine, records = engine({"suffix": SuffixDrafter()}, costs=CHEAP)
    planner = machine.parts.planner
    monkeypatch.setattr(planner.costs.asking, "value", 1.0)
    many = [replace(auto([3, 1, 4, n], "suffix"), id=str(n)) for n in (5, 6)]
    for answer, one in zip(run(machine, many), many):
        assert answer.tokens == plain(one).tokens
    lone = sum("asking" in record.reason for record in records if record.request_id == "5")
    assert len(asked) < 25 and lone > 45  # of 2 x 60 rounds; every eighth asks, and the first of each
    before = len(records)
    run(machine, [replace(auto([2, 9]), id="8")])
    assert {record.reason for record in records[before:]} - {"prefill"} == {"no drafter was asked for"}
    count = len(asked)
    run(machine, [replace(auto([2, 7], "suffix"), id="7")])  # a newcomer is asked in its first round
    assert count < len(asked) < count + 12


@pytest.mark.usefixtures("_frozen")
def test_the_useful_one_of_two_drafters_is_found() -> None:
    one = auto([3, 1, 4, 1, 5], "random", "oracle", params=replace(GREEDY, max_tokens=200))
    machine, records = engine({"random": RandomDrafter(VOCABULARY), "oracle": oracle(one)}, costs=CHEAP)
    [answer] = run(machine, [one])
    assert answer.tokens == plain(one).tokens
    assert [record.drafter for record in records][-5:-1] == ["oracle"] * 4


@pytest.mark.usefixtures("_frozen")
def test_a_draft_model_that_is_as_slow_as_the_target_never_runs() -> None:
    one = auto([3, 1, 4, 1, 5], "oracle")
    same = {"oracle": DrafterCost(call=0.010, step=0.010, sequence=0.001, catch_up=0.001)}
    machine, _ = engine({"oracle": oracle(one)}, costs=replace(CHEAP, drafters=same))
    [answer] = run(machine, [one])
    assert answer.stats.drafted <= 2


def test_a_drafter_that_was_asked_has_nothing_left_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """One without state covers no token, and yet reads none: its price must not be taken for that of a long text."""

    class Sure(OracleDrafter):
        def estimate(self, ask: Ask) -> list[float]:
            return [0.9] * ask.limit

    told: dict[str, int] = {}
    monkeypatch.setattr("sooner.plan.cost.LiveCosts.learn_draft", lambda _, name, *given: told.update({name: given[2]}))
    for name, kind in (("sure", Sure), ("silent", OracleDrafter)):
        one = auto([3, 1, 4, 1, 5], name)
        machine, _ = engine({name: kind({one.prompt: plain(one).tokens})}, costs=CHEAP)
        run(machine, [one])
    assert told["sure"] == 0
    assert told["silent"] >= len(one.prompt) - 1


@pytest.mark.parametrize("params", [GREEDY, SamplingParams(temperature=1.0, max_tokens=40, seed=5)], ids=["T=0", "T=1"])
def test_tokens_never_depend_on_the_policy(params: SamplingParams) -> None:
    """The clock decides here, as it does for users: whatever it says, the tokens are plain decoding's."""
    drafters: dict[str, Drafter] = {
        "ngram": NgramDrafter(),
        "suffix": SuffixDrafter(),
        "random": RandomDrafter(VOCABULARY),
    }
    prompts = [[1, 2, 3, 1, 2, 3, 1, 2], [7], [5, 5, 5, 5], [9, 8, 7, 9, 8]]
    requests = [auto(prompt, *drafters, params=params) for prompt in prompts]
    requests.append(request([4, 4, 2], params, "ngram", 3))
    machine, _ = engine(drafters)
    for one, answer in zip(requests, run(machine, requests)):
        assert answer.tokens == plain(one).tokens


def test_fixed_lengths_keep_what_they_say_beside_requests_that_adapt() -> None:
    fixed = request([1, 2, 3, 1, 2, 3], GREEDY, "random", 3)
    machine, records = engine({"random": RandomDrafter(VOCABULARY)}, costs=DEAR)
    run(machine, [fixed, auto([4, 4, 2], "random")])
    mine = [record for record in records if record.request_id == fixed.id and record.reason != "prefill"]
    assert {record.reason for record in mine[:-3]} == {"fixed length 3"}
    assert {len(record.draft) for record in mine[:-3]} == {3}


def test_an_estimate_that_raises_ends_drafting_and_not_the_text() -> None:
    class Broken(Stateless):
        def estimate(self, ask: Ask) -> Iterator[float]:
            raise ValueError("no idea")

    one = auto([3, 1, 4], "broken")
    machine, _ = engine({"broken": Broken()})
    with pytest.warns(RuntimeWarning, match="no idea"):
        [answer] = run(machine, [one])
    assert answer.tokens == plain(one).tokens
    assert "no idea" in answer.stats.drafter_error


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_a_seed_that_could_not_be_kept_is_refused(rule: str) -> None:
    machine, _ = engine({"sampling": SamplingDrafter(VOCABULARY)})
    seeded = SamplingParams(temperature=1.0, max_tokens=8, seed=3)
    with pytest.raises(InputError, match="follows the clock"):
        machine.add(auto([1, 2], "sampling", params=seeded, rule=rule))
    unseeded = replace(auto([1, 2], "sampling", params=SamplingParams(temperature=1.0, max_tokens=8), rule=rule))
    [answer] = run(machine, [unseeded])
    assert len(answer.tokens) == 8


def test_measured_costs_are_kept_and_drafters_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, store = tiny_decoder(), Store(tmp_path / "costs")
    monkeypatch.setattr(calibrate, "SECONDS", 0.05)
    monkeypatch.setattr("sooner.plan.cost.NOISY", 10.0)
    table = costs_for(decoder, {"ngram": NgramDrafter()}, store)
    assert table.measured and table.rows[0] == 1 and table.seconds == tuple(sorted(table.seconds))
    assert table.drafters["ngram"].call > 0.0
    monkeypatch.setattr(calibrate, "measure", lambda *_: pytest.fail("it was measured already"))
    both = costs_for(decoder, {"ngram": NgramDrafter(), "suffix": SuffixDrafter()}, store)
    assert both.seconds == table.seconds and set(both.drafters) == {"ngram", "suffix"}
    assert store.load(identity(decoder)) == both
    drop_costs(decoder, store)
    assert store.load(identity(decoder)) is None


def test_a_noisy_table_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, store = tiny_decoder(), Store(tmp_path)
    store.save(identity(decoder), replace(CHEAP, spread=0.9))
    fresh = replace(DEAR, spread=0.01)
    monkeypatch.setattr(calibrate, "measure", lambda *_: fresh)
    assert costs_for(decoder, {}, store) == fresh
    monkeypatch.setattr(calibrate, "measure", lambda *_: pytest.fail("this one is good"))
    assert costs_for(decoder, {}, store) == fresh


def test_a_drafter_that_fails_while_it_is_measured_is_named() -> None:
    class Failing(Stateless):
        def tokens(self, ask: Ask) -> list[int]:
            raise RuntimeError("not today")

    with pytest.warns(RuntimeWarning, match="not today"):
        table = measure(tiny_decoder(), {"failing": Failing()}, seconds=0.01)
    assert table.drafters == {}


def test_only_rounds_that_read_no_prompt_tell_what_planning_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[int] = []
    monkeypatch.setattr(LiveCosts, "learn_planning", lambda _, asks, seconds: heard.append(asks))
    machine, records = engine({"suffix": SuffixDrafter()}, costs=CHEAP)
    run(machine, [auto([3, 1, 4, 1, 5], "suffix")])
    rounds = len(records) - 2  # the prompt's, and the one in which the drafter first sees it
    assert 0 < len(heard) <= rounds and set(heard) <= {0, 1}


def test_an_engine_without_drafters_plans_nothing() -> None:
    """Plain decoding is what drafting is compared with: it must not pay for choices that it does not have."""
    machine, records = engine({}, costs=CHEAP)
    one = request([3, 1, 4, 1, 5], GREEDY)
    assert run(machine, [one])[0].tokens == plain(one).tokens
    assert machine.parts.planner.seconds == 0.0 and not machine.parts.planner.costs.passes
    assert kinds(records) == ["prefill"] + ["no drafter was asked for"] * (len(records) - 1)


def test_tables_know_passes_of_many_rows_and_none_beyond_the_context() -> None:
    table = measure(tiny_decoder(), {}, seconds=5.0)
    assert max(table.rows) == min(256, tiny_decoder().config.context)
    assert list(table.rows) == sorted(table.rows)
