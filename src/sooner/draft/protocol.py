"""The contract of a drafter: anything that proposes tokens. `sooner.testing.check_drafter` tells whether one keeps it.

A drafter may be wrong, slow or silent; it can never change the output. It must not

* propose more than `ask.limit` tokens, more than `ask.branches` children of one, or ids outside the vocabulary;
* look at anything but the ledger: what was proposed and not committed has never happened;
* hold a cache that is longer than the ledger once `commit` has returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from sooner.types import Draft, Ledger, Request, Rule


@dataclass(frozen=True, slots=True)
class Ask:
    """One sequence's order to a drafter. `key` names the sequence as long as it lives; keys are never used twice."""

    key: int
    request: Request
    ledger: Ledger
    limit: int  # the most tokens to propose, at least 1
    rule: Rule  # the verification rule of this round: "match", "rejection" or "block"
    weighed: bool = False  # the policy has weighed the drafter's estimates: propose up to the limit, however unsure
    branches: int = 1  # the most children of one token; 1 asks for a chain, and a chain is always an answer


class Drafter(Protocol):
    """`samples` is True when proposals are drawn from a distribution that goes into `Draft.probs`.

    One that answers `Ask.branches` with trees says so by `trees = True`; others draft chains whatever is asked.
    """

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


def branches(drafter: Drafter) -> bool:
    return bool(getattr(drafter, "trees", False))


@runtime_checkable
class Estimates(Protocol):
    """What a drafter may offer beside `Drafter`: the policy then drafts more where the drafter is sure of itself.

    Without it a drafter is judged by the positions of what was accepted of it.
    """

    def estimate(self, ask: Ask) -> Iterable[float]:
        """For each token that `propose` could return: the chance that it and all before it are accepted.

        Never rises, at most ask.limit long, empty where nothing would be proposed; known before anything is drawn. Read
        before the next call, and only as far as it is of use. It need not be right: what is accepted corrects it.
        """
        ...


@runtime_checkable
class Sized(Protocol):
    """What a drafter with weights or a cache of its own may tell: bytes of weights, and bytes of cache a token."""

    @property
    def weight_bytes(self) -> int: ...
    @property
    def token_bytes(self) -> int: ...


@runtime_checkable
class Features(Protocol):
    """What a drafter may be beside `Drafter`: one that drafts from the target's hidden states.

    taps: the layers whose inputs it wants to see, ascending (`Decoder.tapped`).
    """

    taps: tuple[int, ...]

    def adopt(self, key: int, tokens: Sequence[int]) -> int:
        """A sequence begins, or begins again: of how many of its first positions no features are needed.

        The target then reads all others itself, whatever its own cache knows. Not called where prefixes are not shared.
        """
        ...

    def observe(self, key: int, tokens: Sequence[int], start: int, features: Tensor) -> None:
        """features [n, len(taps), width] of the ledger's positions start..start+n-1, without gaps from call to call.

        tokens: the ledger, which is longer than start + n: the token after each of these positions is known.
        """
        ...


def falls_behind(drafter: Drafter) -> bool:
    """Whether it reads the ledger only when it drafts: others read when they are asked, or are shown every pass."""
    return not isinstance(drafter, Estimates | Features)


@dataclass(frozen=True, slots=True)
class Target:
    """What a drafter may know of the target when it is built: `package:Class` is called with this.

    width: of its hidden states.
    """

    vocabulary: int
    context: int
    eos: frozenset[int]
    layers: int
    width: int
