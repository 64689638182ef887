"""The conformance kit passes what keeps the contract, and catches each way to break it, by name."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sooner.draft.ngram import NgramDrafter
from sooner.draft.protocol import Ask, Drafter, Target
from sooner.testing import MOST, TARGET, ContractError, check_drafter
from sooner.types import Draft, Ledger
from tests.support.drafters import ConstantDrafter, OffByOneDrafter, RandomDrafter, SamplingDrafter, Stateless

V = TARGET.vocabulary


class Lookup(NgramDrafter):
    """A sound drafter to break; with one token of context it nearly always has something to propose."""

    def __init__(self) -> None:
        super().__init__(longest=3, shortest=1)


class Fork(Stateless):
    """A sound tree: two children of the root, and a grandchild."""

    def draft(self, ask: Ask) -> Draft:
        if ask.branches == 1:
            return Draft.chain((1,))
        return Draft((1, 2, 1)[: ask.limit], (-1, -1, 0)[: ask.limit], (None,) * min(3, ask.limit))


class Bush(Stateless):
    """Branches whatever was asked for."""

    def draft(self, ask: Ask) -> Draft:
        return Draft((1, 2)[: ask.limit], (-1, -1)[: ask.limit], (None,) * min(2, ask.limit))


class Twins(Stateless):
    def draft(self, ask: Ask) -> Draft:
        if ask.branches == 1:
            return Draft.chain((1,))
        return Draft((1, 1)[: ask.limit], (-1, -1)[: ask.limit], (None,) * min(2, ask.limit))


class TooLong(Lookup):
    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return super().propose([replace(ask, limit=ask.limit + 1) for ask in asks])


class Array(Stateless):
    def tokens(self, ask: Ask) -> Any:
        return np.array(ask.ledger.tokens[-1:])


class TooFew(Lookup):
    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return super().propose(asks)[:1]


class Lists(Stateless):
    def draft(self, ask: Ask) -> Any:
        return [1]


class Writer(Lookup):
    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        drafts = super().propose(asks)
        asks[0].ledger.tokens.extend(drafts[0].tokens)
        return drafts


class Raising(Lookup):
    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [Draft((1,), (3,), (None,)) for _ in asks]  # no such parent


class Believer(Lookup):
    """Takes its own proposals for committed: indexes them, and starts from them as long as nothing tells otherwise."""

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        drafts = super().propose(asks)
        for ask, draft in zip(asks, drafts):
            index = self._indices[ask.key]
            index.extend(ask.ledger.tokens + list(draft.tokens))
            index.length = len(ask.ledger)
        return drafts


class Gossip(Stateless):
    """Proposes what was last committed, for whichever sequence that was."""

    def __init__(self) -> None:
        self._heard = 1

    def tokens(self, ask: Ask) -> Sequence[int]:
        return [self._heard]

    def commit(self, key: int, ledger: Ledger) -> None:
        self._heard = ledger.tokens[-1]


class Crowd(Lookup):
    """Proposes less where more ask."""

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return super().propose([replace(ask, limit=max(1, ask.limit // len(asks))) for ask in asks])


class Dice(Stateless):
    """Randomness of its own, that the ledger does not decide."""

    _rng = random.Random(0)

    def tokens(self, ask: Ask) -> Sequence[int]:
        return [self._rng.randrange(V) for _ in range(ask.limit)]


class Ahead(Lookup):
    """Counts the whole draft as covered."""

    def cached(self, key: int) -> int:
        covered = super().cached(key)
        return covered + MOST if covered else 0


class Hoarder(Lookup):
    def forget(self, key: int) -> None:
        pass


class Strict(Lookup):
    def forget(self, key: int) -> None:
        del self._indices[key]


class Sampling(SamplingDrafter):
    """Sound; `spoil` changes the distribution of each token, or the token itself."""

    def __init__(self) -> None:
        super().__init__(V)

    def draft(self, ask: Ask) -> Draft:
        draft = super().draft(ask)
        return Draft.chain(draft.tokens, [self.spoil(token, q) for token, q in zip(draft.tokens, draft.probs)])

    def spoil(self, token: int, q: Any) -> Any:
        return q


class Float32(Sampling):
    def spoil(self, token: int, q: Any) -> Any:
        return q.astype(np.float32)


class Padded(Sampling):
    def spoil(self, token: int, q: Any) -> Any:
        return np.append(q, 0.0)


class Negative(Sampling):
    def spoil(self, token: int, q: Any) -> Any:
        return np.where(np.arange(V) == token, 1.5, -0.5 / (V - 1))


class Unnormalised(Sampling):
    def spoil(self, token: int, q: Any) -> Any:
        return q * (1 + 1e-6)


class Impossible(Sampling):
    def spoil(self, token: int, q: Any) -> Any:
        q = np.where(np.arange(V) == token, 0.0, q)
        return q / q.sum()


class Secretive(Sampling):
    samples = False


class Anonymous(Lookup):
    name = ""


class Vague(Lookup):
    samples: Any = None


@pytest.mark.parametrize("sound", [Lookup, Fork, Sampling, lambda: RandomDrafter(V), lambda: ConstantDrafter(1)])
def test_sound_drafters_pass(sound: Callable[[], Drafter]) -> None:
    check_drafter(lambda target: sound(), rounds=60)
    check_drafter(sound(), rounds=60, seed=1)


def test_the_target_is_what_the_caller_says() -> None:
    told: list[Target] = []
    target = Target(vocabulary=7, context=40, eos=frozenset({3}), layers=2, width=16)

    def make(given: Target) -> Drafter:
        told.append(given)
        return OffByOneDrafter(given.vocabulary)

    check_drafter(make, target, rounds=60)
    assert set(told) == {target}


BROKEN: list[tuple[Callable[[], Drafter], str]] = [
    (TooLong, "never more tokens than the limit"),
    (lambda: ConstantDrafter(V), f"tokens are ints from 0 to {V - 1}"),
    (lambda: ConstantDrafter(-1), f"tokens are ints from 0 to {V - 1}"),
    (Array, f"tokens are ints from 0 to {V - 1}"),
    (TooFew, "propose returns one Draft for each ask"),
    (Lists, "propose returns Drafts"),
    (Bush, "never more children of one token than branches"),
    (Twins, "children of one node differ"),
    (Writer, "a drafter never changes a ledger"),
    (Raising, "propose raised ValueError"),
    (Believer, "breaks a rule"),  # which one it meets first depends on the texts drawn
    (Gossip, "nothing but the ledger counts"),
    (Crowd, "a draft does not depend on its neighbours"),
    (Dice, "the same ledger always gives the same draft"),
    (Ahead, "after commit, cached(key) is at most the ledger's length"),
    (Hoarder, "cached(key) is 0 once it is forgotten"),
    (Strict, "forget raised KeyError"),
    (Float32, f"probs are float64 arrays of shape ({V},)"),
    (Padded, f"probs are float64 arrays of shape ({V},)"),
    (Negative, "probs are finite and not negative"),
    (Unnormalised, "probs sum to 1 within 1e-09"),
    (Impossible, "a token that was drawn from probs is possible in them"),
    (Secretive, "a drafter that carries probs says samples = True"),
    (Anonymous, "a drafter has a name"),
    (Vague, "`samples` is True or False"),
]


@pytest.mark.parametrize(("broken", "rule"), BROKEN)
def test_each_broken_rule_is_caught_by_name(broken: Callable[[], Drafter], rule: str) -> None:
    with pytest.raises(ContractError) as caught:
        check_drafter(lambda target: broken())
    assert rule in str(caught.value)


def test_the_message_shows_the_situation() -> None:
    with pytest.raises(
        ContractError, match=r"'ngram' breaks a rule: .*; proposed \(.*\); limit \d, branches \d, rule '\w+', ledger of"
    ):
        check_drafter(lambda target: TooLong())
