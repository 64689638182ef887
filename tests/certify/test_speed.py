"""Part 4: clean on the drafters as they are; each kind of fault is seen and named."""

from collections.abc import Sequence

import pytest

from sooner.certify.speed import Amount, Speed
from sooner.certify.subject import Subject
from sooner.draft.model import ModelDrafter
from sooner.draft.protocol import Ask
from sooner.types import Draft, Ledger

AMOUNT = Amount(13, 40)


@pytest.fixture
def checks(subject: Subject) -> Speed:
    return Speed(subject, AMOUNT, 0)


@pytest.mark.parametrize("k", [1, 3, 7])
def test_the_target_and_an_oracle_accept_everything(checks: Speed, k: int) -> None:
    """CASES.md 16."""
    found = checks.same_model("match", False, k) + checks.same_model("block", True, k) + checks.oracle(4, k)
    found += checks.oracle(4, 2 * k, 2)
    assert [check.ok for check in found] == [True] * 4, [check.text for check in found]
    assert found[0].figures["rounds"] == -(-12 // (k + 1))


@pytest.mark.parametrize("name", ["ngram", "model:self/1"])
def test_drafters_keep_their_caches(checks: Speed, name: str) -> None:
    [check] = checks.long_run(name, 4)
    assert check.ok, check.text
    assert check.figures["drafts"] > 0 or name == "ngram"


@pytest.mark.parametrize("too_many", [1, 2])
def test_a_cache_that_loses_entries_is_seen(checks: Speed, too_many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One engine lost a draft token after each full acceptance, another trimmed two entries too many: right text."""
    commit = ModelDrafter.commit

    def forgetful(self: ModelDrafter, key: int, ledger: Ledger) -> None:
        commit(self, key, ledger)
        if state := self._states.get(key):
            self._cache.truncate(state.table, max(state.table.length - too_many, 0))

    monkeypatch.setattr(ModelDrafter, "commit", forgetful)
    [check] = checks.long_run("model:self/1", 4)
    assert not check.ok and "its cache covers" in check.text


def test_a_cache_that_holds_wrong_entries_is_seen(checks: Speed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The right length, other contents: the text stays right, and acceptance decays."""
    commit = ModelDrafter.commit

    def careless(self: ModelDrafter, key: int, ledger: Ledger) -> None:
        commit(self, key, ledger)
        if key in self._states:
            for layer in self._cache.layers:
                layer.keys[self._states[key].table.pages[-1]] *= -1.0

    monkeypatch.setattr(ModelDrafter, "commit", careless)
    [check] = checks.long_run("model:self/1", 4)
    assert not check.ok and "without a past" in check.text


def test_a_drafter_whose_past_matters_is_seen(checks: Speed, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = type(checks.subject.drafters["ngram"])
    calls = 0

    def moody(self: object, asks: Sequence[Ask]) -> list[Draft]:
        nonlocal calls
        calls += 1
        return [Draft.chain([calls % 50]) for _ in asks]

    monkeypatch.setattr(inner, "propose", moody)
    [check] = checks.long_run("ngram", 4)
    assert not check.ok and "without a past" in check.text
