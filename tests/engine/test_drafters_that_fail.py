"""A drafter may be wrong, slow or broken: the text goes on as plain decoding would (CASES.md 23 and 25)."""

from collections.abc import Sequence

import numpy as np
import pytest

from sooner.draft.protocol import Ask
from sooner.types import Draft, Ledger, SamplingParams
from tests.support.drafters import ConstantDrafter
from tests.support.engines import VOCABULARY, engine, plain, request, run


class Broken(ConstantDrafter):
    """Proposes something that the contract forbids, or raises."""

    def __init__(self, fault: str) -> None:
        super().__init__(1)
        self.fault = fault

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        if self.fault == "raises":
            raise RuntimeError("out of ideas")
        if self.fault == "drafts missing":
            return []
        tokens = {"too long": [1] * 9, "outside": [1, VOCABULARY], "negative": [-1]}[self.fault]
        return [Draft.chain(tokens) for _ in asks]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("raises", "out of ideas"),
        ("drafts missing", "returned 0 drafts for 1 asks"),
        ("too long", "proposed 9 tokens where 4 were granted"),
        ("outside", "proposed token 41, the target's vocabulary has 41"),
        ("negative", "proposed token -1"),
    ],
)
def test_a_broken_drafter_is_switched_off_and_named(fault: str, message: str) -> None:
    one = request([1, 2, 3], drafter="broken")
    machine, records = engine({"broken": Broken(fault)})
    with pytest.warns(RuntimeWarning, match="was switched off") as warnings:
        [done] = run(machine, [one])
    assert len(warnings) == 1
    assert message in done.stats.drafter_error
    assert done.tokens == plain(one).tokens
    assert not any(record.draft for record in records)


class Ahead(ConstantDrafter):
    """Claims to have read more than the ledger holds."""

    def cached(self, key: int) -> int:
        return 10_000


def test_a_drafter_that_is_ahead_of_the_ledger_is_a_bug_that_shows() -> None:
    machine, _ = engine({"ahead": Ahead(1)})
    with pytest.raises(AssertionError, match="ahead of the ledger"):
        run(machine, [request([1, 2, 3], drafter="ahead")])


class Impossible(ConstantDrafter):
    """Says that its token was drawn from a distribution that cannot give it."""

    samples = True

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        q = np.zeros(VOCABULARY)
        q[0] = 1.0
        return [Draft.chain([5], [q]) for _ in asks]


def test_a_token_that_its_own_distribution_excludes_raises() -> None:
    machine, _ = engine({"impossible": Impossible(5)})
    params = SamplingParams(max_tokens=4)
    with pytest.raises(ValueError, match="cannot have been drawn"):
        run(machine, [request([1, 2, 3], params, "impossible", rule="rejection")])


class Counting(ConstantDrafter):
    """Remembers which sequences it still holds."""

    def __init__(self) -> None:
        super().__init__(1)
        self.held: set[int] = set()

    def commit(self, key: int, ledger: Ledger) -> None:
        self.held.add(key)

    def forget(self, key: int) -> None:
        self.held.discard(key)


def test_every_sequence_is_forgotten_when_it_ends_or_is_aborted() -> None:
    drafter = Counting()
    machine, _ = engine({"c": drafter})
    requests = [request([1, 2, i], drafter="c") for i in range(4)]
    for one in requests:
        machine.add(one)
    for _ in range(3):
        machine.step()
    assert len(drafter.held) == 4
    machine.abort(requests[0].id)
    machine.abort("never heard of")
    assert len(drafter.held) == 3
    while machine.busy:
        machine.step()
    assert not drafter.held
    assert machine.parts.cache.free_pages == machine.parts.cache.pages
