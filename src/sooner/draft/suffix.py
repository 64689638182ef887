"""A suffix automaton over prompt and output that proposes by frequency and knows how sure it is.

Sources: SAM-Decoding (Hu et al. 2024) drafts from an online suffix automaton and trusts long matches; SuffixDecoding
(Oliaro et al. 2024) scores a continuation by the counts along its path in a suffix tree. Here the automaton keeps
counts, and the estimate uses both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import islice, takewhile
from typing import NamedTuple

from sooner.draft.lookup import LookupDrafter
from sooner.draft.protocol import Ask
from sooner.errors import InputError
from sooner.types import Draft

ROOT, NONE = 0, -1

# Contexts whose counts a new token moves, the longest first. Only a looping text has more, one for each turn, and there
# all of them agree on what comes next. So the shorter ones miss a turn, and a token stays cheap however long the loop.
COUNTED = 32


class Place(NamedTuple):
    """A state, and how many tokens of its run the text agrees with."""

    state: int
    matched: int


class SuffixAutomaton:
    """Every run of tokens in one ledger, grouped into states: runs that end at the same places share one.

    States are numbers, 0 is the empty run's. Of each state: next, where a token leads; size, the length of its longest
    run; link, the state of the longest suffix that ends at more places; followed, how often its runs went on; best,
    the token that they went on with most often, the most recent one among equals; top, how often that was.
    """

    def __init__(self) -> None:
        self.length = 0
        self.next: list[dict[int, int]] = [{}]
        self.size, self.link = [0], [NONE]
        self.followed, self.best, self.top = [0], [NONE], [0]
        self._last = ROOT  # the state of the whole ledger

    def extend(self, tokens: list[int]) -> None:
        for token in tokens[self.length :]:
            self._append(token)
        self.length = len(tokens)

    def _append(self, token: int) -> None:
        """Blumer et al. 1985, with counts."""
        state = self._add(self.size[self._last] + 1, {}, NONE)
        context = self._last
        while context != NONE and token not in self.next[context]:
            self.next[context][token] = state
            context = self.link[context]
        self.link[state] = ROOT if context == NONE else self._exactly(context, token)
        self._count(token)
        self._last = state

    def _exactly(self, context: int, token: int) -> int:
        """The state whose longest run is the context's longest and the token; split off a larger one if need be."""
        state = self.next[context][token]
        size = self.size[context] + 1
        if self.size[state] == size:
            return state
        part = self._add(size, dict(self.next[state]), self.link[state])
        self.followed[part], self.best[part], self.top[part] = self.followed[state], self.best[state], self.top[state]
        self.link[state] = part
        while context != NONE and self.next[context].get(token) == state:
            self.next[context][token] = part
            context = self.link[context]
        return part

    def _add(self, size: int, following: dict[int, int], link: int) -> int:
        self.next.append(following)
        self.size.append(size)
        self.link.append(link)
        self.followed.append(0)
        self.best.append(NONE)
        self.top.append(0)
        return len(self.size) - 1

    def _count(self, token: int) -> None:
        """Notes that the ledger's suffixes went on with the token, the longest first."""
        followed, context = self.followed, self._last
        for _ in range(COUNTED):
            if context == ROOT:
                return
            followed[context] += 1
            # The longer run now ends the ledger: all its occurrences but this one were followed, and counted before.
            times = followed[self.next[context][token]] + 1
            if times >= self.top[context]:
                self.top[context], self.best[context] = times, token
            context = self.link[context]

    def walk(self) -> Iterator[tuple[int, int, int, int]]:
        """The most frequent continuation of the longest known context, token by token, without end.

        Yields (token, how often it came next, how often the context went on, tokens of the context). The context of a
        later token includes the earlier ones of the walk. Ends where no context of at least one token ever went on.
        """
        place = self.end
        while (place := self.known(place)).state != ROOT:
            token = self.best[place.state]
            yield token, self.top[place.state], self.followed[place.state], place.matched
            place = self.step(place, token)

    @property
    def end(self) -> Place:
        """Where the ledger ends."""
        return Place(self._last, self.length)

    def known(self, place: Place) -> Place:
        """The longest suffix of the place's run that ever went on; the root where none does."""
        state, matched = place
        while state > ROOT and not self.followed[state]:
            state = self.link[state]
            matched = self.size[state]
        return Place(state, matched)

    def step(self, place: Place, token: int) -> Place:
        return Place(self.next[place.state][token], place.matched + 1)

    def continuations(self, place: Place, count: int) -> list[tuple[int, int]]:
        """The tokens that most often came next at a known place, the most frequent first, and how often each did."""
        state = place.state
        times = {token: self.followed[longer] or 1 for token, longer in self.next[state].items()}
        times[self.best[state]] = self.top[state]
        order = sorted(times, key=lambda token: (-times[token], token != self.best[state], token))
        return [(token, times[token]) for token in order[:count]]


class SuffixDrafter(LookupDrafter[SuffixAutomaton]):
    """Proposes the most frequent continuation of the longest known context, and stops when it is unsure.

    The chance that a token is right, given that those before it are, is estimated as c m / (N m + doubt): its context
    of m tokens went on N times, c of them with this token. It rises with the length of the match and with the number
    of occurrences, and falls with each occurrence that went on differently.

    min_confidence: the draft ends before the first token whose chance of being right together with all before it, the
    product of the estimates, is lower; where the policy has weighed them it decides. A tree goes down to the share of
    min_confidence that each of its branches has. doubt: tokens of a single match at
    which a copy is right every other time.
    """

    name = "suffix"
    trees = True

    def __init__(self, min_confidence: float = 0.3, doubt: float = 2.0) -> None:
        super().__init__()
        if not 0.0 <= min_confidence <= 1.0:
            raise InputError(f"min_confidence is {min_confidence}, must be between 0 and 1; 0 never stops")
        if doubt < 0.0:
            raise InputError(f"doubt is {doubt}, must be at least 0; 2 is usual")
        self._min_confidence, self._doubt = min_confidence, doubt

    def new_index(self, ask: Ask) -> SuffixAutomaton:  # noqa: ARG002
        return SuffixAutomaton()

    def copy(self, index: SuffixAutomaton, ask: Ask) -> Sequence[int]:
        least = 0.0 if ask.weighed else self._min_confidence
        sure = takewhile(lambda rated: rated[1] >= least, self._rated(index, ask.limit))
        return [token for token, _ in sure]

    def estimate(self, ask: Ask) -> Iterator[float]:
        """For each token that could be proposed: the estimated chance that it and all before it are accepted.

        Never rises. Up to ask.limit long, and not cut at min_confidence: for a planner that weighs it against costs.
        """
        return (confidence for _, confidence in self._rated(self.index_of(ask), ask.limit))

    def draft(self, ask: Ask) -> Draft:
        return self._tree(ask) if ask.branches > 1 else super().draft(ask)

    def _tree(self, ask: Ask) -> Draft:
        """The rows that are likeliest to be accepted, each counted with those before it on its path."""
        index, tokens, parents = self.index_of(ask), list[int](), list[int]()
        waiting: list[tuple[float, int, int, Place]] = []  # minus the confidence, parent, token, place before it

        def offer(place: Place, parent: int, confidence: float) -> None:
            for token, chance in self._continuations(index, place, ask.branches):
                if confidence * chance >= self._min_confidence / ask.branches:
                    heappush(waiting, (-confidence * chance, parent, token, index.known(place)))

        offer(index.end, -1, 1.0)
        while waiting and len(tokens) < ask.limit:
            confidence, parent, token, place = heappop(waiting)
            tokens.append(token)
            parents.append(parent)
            if token not in ask.request.stop_ids:
                offer(index.step(place, token), len(tokens) - 1, -confidence)
        return Draft(tuple(tokens), tuple(parents), (None,) * len(tokens))

    def _continuations(self, index: SuffixAutomaton, place: Place, count: int) -> Iterator[tuple[int, float]]:
        """Tokens that may follow a place and the chance of each."""
        state, matched = place = index.known(place)
        if state != ROOT:
            for token, times in index.continuations(place, count):
                yield token, times * matched / (index.followed[state] * matched + self._doubt)

    def _rated(self, index: SuffixAutomaton, limit: int) -> Iterator[tuple[int, float]]:
        confidence = 1.0
        for token, count, total, matched in islice(index.walk(), limit):
            confidence *= count * matched / (total * matched + self._doubt)
            yield token, confidence
