"""Prompt lookup: copy what followed the last time that the ledger's last few tokens occurred.

Source: Saxena, "Prompt Lookup Decoding" (2023). The longest match comes first, and the answer comes from an index that
grows with the ledger, not from a search over it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import accumulate, islice
from operator import mul

from sooner.draft.lookup import LookupDrafter
from sooner.draft.protocol import Ask
from sooner.errors import InputError
from sooner.types import Draft

DOUBT = 2.0  # tokens of a match at which a copy is right every other time
LOOKED = 32  # occurrences of a match that are looked at for other continuations: in a loop there are none

Occurrence = tuple[int, "Occurrence | None"]  # where what follows it starts, and the occurrence before it


class NgramIndex:
    """For each n-gram of a ledger that has a continuation: where these start, the most recent first."""

    def __init__(self, longest: int, shortest: int) -> None:
        self.length = 0
        self._last: dict[int, dict[tuple[int, ...], Occurrence]] = {n: {} for n in range(longest, shortest - 1, -1)}

    def extend(self, tokens: list[int]) -> None:
        for place in range(max(self.length, 1), len(tokens)):
            for n, last in self._last.items():
                if n <= place:
                    run = tuple(tokens[place - n : place])
                    last[run] = place, last.get(run)
        self.length = len(tokens)

    def find(self, tokens: list[int], count: int = 1) -> list[tuple[int, int]]:
        """Where continuations start that begin with different tokens, at most `count`, and how long their matches are.

        The longest match comes first, and the most recent of equal ones.
        """
        found: dict[int, tuple[int, int]] = {}
        for n, last in self._last.items():
            for place in islice(places(last.get(tuple(tokens[-n:]))), LOOKED):
                if len(found) == count:
                    break
                found.setdefault(tokens[place], (place, n))
        return list(found.values())


def places(occurrence: Occurrence | None) -> Iterator[int]:
    while occurrence:
        place, occurrence = occurrence
        yield place


class NgramDrafter(LookupDrafter[NgramIndex]):
    """Proposes what followed the most recent earlier occurrence of the longest suffix of the ledger.

    longest, shortest: lengths of the suffixes that are looked for, in tokens, the longest first. The most recent
    occurrence is taken even where its continuation is shorter than the limit: the ledger then repeats itself, and the
    copy goes on through the draft's own tokens, so that a loop of any period is drafted to the full limit.
    """

    name = "ngram"
    trees = True

    def __init__(self, longest: int = 5, shortest: int = 2) -> None:
        super().__init__()
        if not 1 <= shortest <= longest:
            raise InputError(f"shortest is {shortest} and longest {longest}; use 1 <= shortest <= longest")
        self._longest, self._shortest = longest, shortest

    def new_index(self, ask: Ask) -> NgramIndex:  # noqa: ARG002
        return NgramIndex(self._longest, self._shortest)

    def copy(self, index: NgramIndex, ask: Ask) -> Sequence[int]:
        tokens = ask.ledger.tokens
        return [tokens[at] for start, _ in index.find(tokens) for at in copied(start, len(tokens), ask.limit)]

    def draft(self, ask: Ask) -> Draft:
        return self._tree(ask) if ask.branches > 1 else super().draft(ask)

    def _tree(self, ask: Ask) -> Draft:
        """Several continuations side by side: the rows that are likeliest to be accepted."""
        ledger, found = ask.ledger.tokens, self.index_of(ask).find(ask.ledger.tokens, ask.branches)
        following = [copied(start, len(ledger), ask.limit) for start, _ in found]
        waiting, left = list[tuple[float, int, int, int]](), -1.0  # minus the chance, continuation, parent, match
        for continuation, (_, matched) in enumerate(found):
            heappush(waiting, (left * right(matched), continuation, -1, matched))
            left *= 1.0 - right(matched)  # the others are wrong where this one is right
        tokens, parents = list[int](), list[int]()
        while waiting and len(tokens) < ask.limit:
            chance, continuation, parent, matched = heappop(waiting)
            token = ledger[next(following[continuation])]
            tokens.append(token)
            parents.append(parent)
            if token not in ask.request.stop_ids:
                heappush(waiting, (chance * right(matched + 1), continuation, len(tokens) - 1, matched + 1))
        return Draft(tuple(tokens), tuple(parents), (None,) * len(tokens))

    def estimate(self, ask: Ask) -> Iterator[float]:
        """For each token that would be proposed: the estimated chance that it and all before it are accepted."""
        for _, matched in self.index_of(ask).find(ask.ledger.tokens):
            yield from accumulate(map(right, range(matched, matched + ask.limit)), mul)


def right(matched: int) -> float:
    """The estimated chance that the token after a match of so many tokens is right."""
    return matched / (matched + DOUBT)


def copied(start: int, end: int, limit: int) -> Iterator[int]:
    """Places of the ledger that a copy from `start` on takes its tokens from; at the ledger's end it begins again."""
    return (start + step % (end - start) for step in range(limit))
