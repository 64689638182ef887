"""Prompt lookup: copy what followed the last time that the ledger's last few tokens occurred.

Source: Saxena, "Prompt Lookup Decoding" (2023). The longest match comes first, and the answer comes from an index that
grows with the ledger, not from a search over it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import mul

from sooner.draft.lookup import LookupDrafter
from sooner.draft.protocol import Ask
from sooner.errors import InputError

DOUBT = 2.0  # tokens of a match at which a copy is right every other time


class NgramIndex:
    """For each n-gram of a ledger that has a continuation: where its most recent one starts."""

    def __init__(self, longest: int, shortest: int) -> None:
        self.length = 0
        self._continues: dict[int, dict[tuple[int, ...], int]] = {n: {} for n in range(longest, shortest - 1, -1)}

    def extend(self, tokens: list[int]) -> None:
        for place in range(max(self.length, 1), len(tokens)):
            for n, continues in self._continues.items():
                if n <= place:
                    continues[tuple(tokens[place - n : place])] = place
        self.length = len(tokens)

    def find(self, tokens: list[int]) -> tuple[int, int] | None:
        """Where the continuation of the longest match starts, and how long the match is; the most recent of several."""
        for n, continues in self._continues.items():
            start = continues.get(tuple(tokens[-n:]))
            if start is not None:
                return start, n
        return None


class NgramDrafter(LookupDrafter[NgramIndex]):
    """Proposes what followed the most recent earlier occurrence of the longest suffix of the ledger.

    longest, shortest: lengths of the suffixes that are looked for, in tokens, the longest first. The most recent
    occurrence is taken even where its continuation is shorter than the limit: the ledger then repeats itself, and the
    copy goes on through the draft's own tokens, so that a loop of any period is drafted to the full limit.
    """

    name = "ngram"

    def __init__(self, longest: int = 5, shortest: int = 2) -> None:
        super().__init__()
        if not 1 <= shortest <= longest:
            raise InputError(f"shortest is {shortest} and longest {longest}; use 1 <= shortest <= longest")
        self._longest, self._shortest = longest, shortest

    def new_index(self, ask: Ask) -> NgramIndex:  # noqa: ARG002
        return NgramIndex(self._longest, self._shortest)

    def copy(self, index: NgramIndex, ask: Ask) -> Sequence[int]:
        found = index.find(ask.ledger.tokens)
        if found is None:
            return ()
        copied = ask.ledger.tokens[found[0] : found[0] + ask.limit]
        return (copied * -(-ask.limit // len(copied)))[: ask.limit]

    def estimate(self, ask: Ask) -> Iterator[float]:
        """For each token that would be proposed: the estimated chance that it and all before it are accepted.

        After a match of m tokens a token is right with chance m / (m + DOUBT), and the match grows with it.
        """
        found = self.index_of(ask).find(ask.ledger.tokens)
        if found is None:
            return iter(())
        return accumulate((m / (m + DOUBT) for m in range(found[1], found[1] + ask.limit)), mul)
