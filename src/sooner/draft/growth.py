"""Drafts of a model, grown best first; a chain is the tree without branches.

How many children a token gets is settled before any of them is drawn, and what was drawn stays, so that `rejection`
is exact; which token gets them may depend on all that was drawn before. Under `match` the target's own noise is used,
so that both choose alike as often as the Gumbel coupling allows; under `rejection` and `block` children are sampled,
and each carries its distribution. Sources: Sequoia (Chen et al. 2024) for children drawn without replacement, EAGLE-2
(Li et al. 2024) for trees that follow the draft's own confidence.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from sooner.cache.paged import Table
from sooner.draft.protocol import Ask
from sooner.kernels.interface import Chooser
from sooner.models.runner import F32, Span
from sooner.sampling.draws import RoundDraws
from sooner.sampling.noise import Noise
from sooner.sampling.road import NoTokenError, Road
from sooner.types import Distribution, Draft


@dataclass(frozen=True, slots=True)
class Child:
    """q: what the token was drawn from, None where it was not. chance: that it is right where its parent is."""

    token: int
    q: Distribution | None
    chance: float


class Growth:
    """One draft of at most `limit` tokens, no more than `branches` of them at one place; nothing follows a stop.

    expanded: the nodes that were given children, in that order; `next` opens the likeliest of the others.
    """

    def __init__(self, limit: int, branches: int, stops: Collection[int] = ()) -> None:
        self.limit = limit
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.probs: list[Distribution | None] = []
        self.expanded: list[int] = []
        self._branches, self._stops = branches, stops
        self._open: list[tuple[float, int]] = [(-1.0, -1)]  # minus the chance of its whole path, and the node
        self._chance = -1.0  # of the node that was opened last

    @property
    def room(self) -> int:
        """How many children the next node may get."""
        return min(self._branches, self.limit - len(self.tokens))

    @property
    def draft(self) -> Draft:
        return Draft(tuple(self.tokens), tuple(self.parents), tuple(self.probs))

    @property
    def read(self) -> Draft:
        """The expanded nodes but the root, as the draft that a cache holds."""
        nodes = self.expanded[1:]
        places = {node: place for place, node in enumerate(nodes)}
        parents = tuple(places.get(self.parents[node], -1) for node in nodes)
        return Draft(tuple(self.tokens[node] for node in nodes), parents, (None,) * len(nodes))

    @property
    def parent(self) -> int:
        """Where the open node's parent is among the expanded ones."""
        return self.expanded.index(self.parents[self.expanded[-1]])

    def next(self) -> bool:
        """Opens the likeliest node, the root first; False where the draft is complete."""
        if not self._open or self.room < 1:
            return False
        self._chance, node = heappop(self._open)
        self.expanded.append(node)
        return True

    def path(self) -> list[int]:
        """Tokens from the root down to the open node."""
        tokens, node = [], self.expanded[-1]
        while node >= 0:
            tokens.append(self.tokens[node])
            node = self.parents[node]
        return tokens[::-1]

    def extend(self, children: Sequence[Child]) -> None:
        """The open node's children: at most `room`."""
        for child in children:
            if child.token not in self._stops:
                heappush(self._open, (self._chance * child.chance, len(self.tokens)))
            self.tokens.append(child.token)
            self.parents.append(self.expanded[-1])
            self.probs.append(child.q)


class Drawing:
    """One ask's draft of at most `limit` tokens while it grows, from logits that come node by node."""

    def __init__(self, ask: Ask, limit: int) -> None:
        self.ask = ask
        self.growth = Growth(limit, ask.branches, ask.request.stop_ids)
        self._road = Road.of(ask.request)
        self._noise = Noise(ask.request.seed, ask.request.sample)

    def next_span(self, table: Table) -> Span:
        """The row of the open node; those of the nodes before it lie at the end of the table."""
        read = self.growth.read
        return Span(table, (), read, wants=0, stored=len(read) - 1)

    def extend(self, logits: F32, fast: Chooser | None) -> None:
        """Children of the open node, from the same road as the target's; none where that leaves no token."""
        growth, prefix = self.growth, [*self.ask.ledger.tokens, *self.growth.path()]
        try:
            if self.ask.rule == "match":
                growth.extend(matching(self._road, logits, prefix, growth.room, self._noise, fast))
            else:
                draws = RoundDraws(self._noise, len(self.ask.ledger))
                growth.extend(sampled(self._road, logits, prefix, growth.room, draws, len(growth.tokens)))
        except NoTokenError:
            return  # nothing can follow here


def matching(
    road: Road, logits: F32, prefix: Sequence[int], count: int, noise: Noise, fast: Chooser | None = None
) -> list[Child]:
    """What the target would choose here if it thought like the draft, and what it would choose next: its own noise."""
    first = road.choose(logits, prefix, noise, fast)
    if count == 1:
        return [Child(first, None, 1.0)]
    chances = road.rank(logits, prefix, noise)
    others = sorted(chances.keys() - {first}, key=lambda token: (-chances[token], token))
    return [Child(token, None, chances.get(token, 0.0)) for token in [first, *others][:count]]


def sampled(
    road: Road, logits: F32, prefix: Sequence[int], count: int, draws: RoundDraws, index: int = 0
) -> list[Child]:
    """Draws up to `count` children without replacement, of which each carries what it was drawn from.

    index: of the first child in the draft.
    """
    q = road.probabilities(logits, prefix)
    left, children = q, list[Child]()
    for i in range(index, index + min(count, int(np.count_nonzero(q)))):
        token = draws.draft(i, left)
        children.append(Child(token, left, float(q[token])))
        left = left.copy()
        left[token] = 0.0
        left /= left.sum() or 1.0
    return children
