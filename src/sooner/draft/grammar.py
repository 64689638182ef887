"""Drafts what a structure leaves no choice about: the keys of a JSON schema, the quotes around them, the end.

Verification keeps a forced token because the target's choice is taken among the allowed ones. Where the mask leaves one
token that is certain; where the same text can be spelled in other tokens, the target may prefer another spelling.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import mul

from sooner.draft.protocol import Ask
from sooner.types import Draft, Ledger

SURE = 0.95  # of a forced token: the target may prefer another spelling


class GrammarDrafter:
    """Implements `protocol.Drafter`. Proposes nothing for a request without structured output."""

    name = "grammar"
    samples = False

    def estimate(self, ask: Ask) -> Iterator[float]:
        """Nearly certain, for as many tokens as are forced."""
        return accumulate((SURE for _ in self._forced(ask)), mul)

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [Draft.chain(self._forced(ask)) for ask in asks]

    def _forced(self, ask: Ask) -> list[int]:
        structure = ask.request.structure
        return structure.forced(ask.ledger.output)[: ask.limit] if structure else []

    def commit(self, key: int, ledger: Ledger) -> None:
        """Nothing is kept."""

    def cached(self, key: int) -> int:  # noqa: ARG002
        return 0

    def forget(self, key: int) -> None:
        """Nothing is kept."""
