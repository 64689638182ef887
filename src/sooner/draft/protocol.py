"""The contract of a drafter: anything that proposes tokens. `sooner.testing.check_drafter` tells whether one keeps it.

A drafter may be wrong, slow or silent; it can never change the output. It must not

* propose more than `ask.limit` tokens, or ids outside the vocabulary;
* look at anything but the ledger: what was proposed and not committed has never happened;
* hold a cache that is longer than the ledger once `commit` has returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sooner.types import Draft, Ledger, Request, Rule


@dataclass(frozen=True, slots=True)
class Ask:
    """One sequence's order to a drafter. `key` names the sequence as long as it lives; keys are never used twice."""

    key: int
    request: Request
    ledger: Ledger
    limit: int  # the most tokens to propose, at least 1
    rule: Rule  # the verification rule of this round: "match", "rejection" or "block"


class Drafter(Protocol):
    """`samples` is True when proposals are drawn from a distribution that goes into `Draft.probs`."""

    name: str
    samples: bool

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """One draft for each ask, in order; an empty draft means "nothing worth proposing"."""
        ...

    def commit(self, key: int, ledger: Ledger) -> None:
        """The round is over and `ledger` holds what was committed: cut any cache back to what agrees with it."""
        ...

    def cached(self, key: int) -> int:
        """How many ledger tokens the drafter's state for this sequence covers; 0 when it holds none."""
        ...

    def forget(self, key: int) -> None:
        """The sequence has ended: drop its state."""
        ...


@dataclass(frozen=True, slots=True)
class Target:
    """What a drafter may know of the target when it is built: `package:Class` is called with this."""

    vocabulary: int
    context: int
    eos: frozenset[int]
