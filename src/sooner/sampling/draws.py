"""How a round names its random draws (`rejection` and `block`; `match` has noise of its own)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sooner.sampling.noise import F64, Purpose


class Source(Protocol):
    """Answers that depend on their names alone. `Noise` is the real one; certify/laws.py has one that enumerates."""

    def below(self, purpose: Purpose, start: int, index: int, probability: float) -> bool: ...
    def pick(self, purpose: Purpose, start: int, index: int, weights: F64) -> int: ...


@dataclass(frozen=True, slots=True)
class RoundDraws:
    """Randomness of one round, keyed by the ledger length at its start, so that no two rounds share a draw.

    Keyed by position instead, `block` would meet again what it has looked at beyond its last accepted token, and the
    joint law of neighbouring rounds would be biased although each round is exact.
    """

    source: Source
    start: int

    def draft(self, index: int, weights: F64) -> int:
        """Draws the index-th drafted token of the round."""
        return self.source.pick(Purpose.DRAFT, self.start, index, weights)

    def accept(self, index: int, probability: float) -> bool:
        return self.source.below(Purpose.ACCEPT, self.start, index, probability)

    def choose(self, weights: F64) -> int:
        """Draws the correction or the bonus, from weights that need not sum to 1."""
        return self.source.pick(Purpose.CORRECT, self.start, 0, weights)
