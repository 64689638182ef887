"""Requests draft from one another's answers only where that is switched on, and within bounds (CASES.md 17)."""

from __future__ import annotations

import pytest

from sooner.draft.history import Answers, HistoryDrafter
from sooner.draft.load import load_lookup
from sooner.draft.protocol import Ask
from sooner.errors import InputError
from sooner.testing import check_drafter
from sooner.types import Ledger
from tests.support.engines import engine, plain, request, run

PROMPT = [3, 1, 4, 1, 5, 9]


@pytest.mark.parametrize(
    ("first", "second", "helps"),
    [("team", "team", True), ("team", "other", False), ("", "", False), ("team", "", False)],
)
def test_only_requests_of_the_same_history_draft_from_one_another(first: str, second: str, helps: bool) -> None:
    machine, _ = engine({"history": HistoryDrafter()})
    [a] = run(machine, [request(PROMPT, drafter="history", history=first)])
    [b] = run(machine, [request(PROMPT, drafter="history", history=second)])
    assert a.tokens == b.tokens == plain(request(PROMPT)).tokens
    assert (b.stats.drafted > a.stats.drafted) == helps
    assert not helps or (b.stats.acceptance_rate or 0) > 0.8


@pytest.mark.parametrize("name", ["ngram", "suffix"])
def test_lookup_drafters_keep_every_request_to_itself(name: str) -> None:
    """The second request drafts neither more nor fewer tokens than it would alone."""
    machine, _ = engine({name: load_lookup(name)})
    run(machine, [request(PROMPT, drafter=name)])
    [second] = run(machine, [request(PROMPT, drafter=name)])
    [alone] = run(engine({name: load_lookup(name)})[0], [request(PROMPT, drafter=name)])
    assert (second.stats.drafted, second.stats.accepted) == (alone.stats.drafted, alone.stats.accepted)


def test_the_most_recent_answer_is_followed_and_the_memory_is_bounded() -> None:
    answers = Answers(most=3)
    for i in range(5):
        answers.note(("x", i, i, i, i), i + 1)
    assert len(answers) == 3
    assert answers.follow("x", [0, 0, 0, 0], 9) == []
    answers.note(("x", 4, 4, 4, 4), 8)
    assert answers.follow("x", [7, 4, 4, 4, 4], 9) == [8]
    assert answers.follow("y", [4, 4, 4, 4], 9) == []
    assert answers.follow("x", [4, 4], 9) == []
    with pytest.raises(InputError, match="most is 0, must be at least 1"):
        HistoryDrafter(0)


def test_the_end_of_an_answer_is_noted_too() -> None:
    drafter = HistoryDrafter()
    one, ledger = request([1, 2, 3, 4], history="x"), Ledger([1, 2, 3, 4], 4)
    drafter.propose([Ask(0, one, ledger, 4, "match")])
    ledger.tokens += [5, 6, 7]
    drafter.commit(0, ledger)
    drafter.forget(0)
    ask = Ask(1, one, Ledger([1, 2, 3, 4], 4), 2, "match")
    assert drafter.propose([ask])[0].tokens == (5, 6)
    assert [0 < chance < 1 for chance in drafter.estimate(ask)] == [True, True]


def test_it_keeps_the_contract() -> None:
    check_drafter(lambda target: HistoryDrafter())
