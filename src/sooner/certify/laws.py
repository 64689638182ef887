"""Exactness by enumeration: the joint law of what a rule commits, computed path by path through the engine's own code.

Every random answer is named (`RoundDraws`). The enumerator treats each name as one uniform number and follows every
outcome, remembering for each name the interval that earlier answers have left. So it also sees what no single round
shows: two draws that share a name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import pairwise, product
from typing import TypeVar, cast

import numpy as np

from sooner.draft.growth import Child, Growth, matching, sampled
from sooner.engine.judge import judge_by_match, judge_by_ratio, prefix
from sooner.sampling.draws import RoundDraws
from sooner.sampling.noise import F64, U64, Noise, Purpose
from sooner.sampling.road import F32, Road
from sooner.types import Distribution, Draft, Rule

Outcome = TypeVar("Outcome", bound=Hashable)
Tokens = tuple[int, ...]
Name = tuple[int, int, int]


class Enumerator:
    """A `draws.Source` that plays a script of branch numbers and extends it by the first possible branch."""

    def __init__(self, script: list[int]) -> None:
        self.script = script
        self.widths: list[int] = []  # how many branches each question had
        self.probability = 1.0
        self._left: dict[Name, tuple[float, float]] = {}

    def below(self, purpose: Purpose, start: int, index: int, probability: float) -> bool:
        return self._branch((purpose, start, index), [0.0, probability, 1.0]) == 0

    def pick(self, purpose: Purpose, start: int, index: int, weights: F64) -> int:
        alive = np.flatnonzero(weights)
        cumulated = weights[alive].cumsum()
        edges = [0.0, *(cumulated / cumulated[-1])]
        return int(alive[self._branch((purpose, start, index), edges)])

    def _branch(self, name: Name, edges: list[float]) -> int:
        """Chooses the slice edges[i]..edges[i+1] that the named uniform falls into, given what is known of it."""
        low, high = self._left.get(name, (0.0, 1.0))
        slices = [(max(a, low), min(b, high)) for a, b in pairwise(edges)]
        possible = [i for i, (a, b) in enumerate(slices) if b > a]
        if len(self.widths) == len(self.script):
            self.script.append(0)
        chosen = possible[self.script[len(self.widths)]]
        self.widths.append(len(possible))
        self._left[name] = slices[chosen]
        self.probability *= (slices[chosen][1] - slices[chosen][0]) / (high - low)
        return chosen


def law(program: Callable[[Enumerator], Outcome]) -> dict[Outcome, float]:
    """The exact distribution of what `program` returns, by playing it once for every path of random answers."""
    result: dict[Outcome, float] = defaultdict(float)
    script: list[int] = []
    while True:
        path = Enumerator(script)
        result[program(path)] += path.probability
        while script and script[-1] + 1 == path.widths[len(script) - 1]:
            script.pop()
        if not script:
            return dict(result)
        script[-1] += 1


@dataclass(frozen=True, slots=True)
class TableModel:
    """A model small enough to enumerate: logits that depend on every token of the prefix."""

    vocabulary: int
    seed: int
    spread: float = 1.5

    def logits(self, prefix: Tokens) -> F32:
        return _table_row(self.vocabulary, self.seed, self.spread, prefix)


@cache
def _table_row(vocabulary: int, seed: int, spread: float, prefix: Tokens) -> F32:
    rng = np.random.default_rng([seed, vocabulary, len(prefix), *prefix])
    return rng.normal(0.0, spread, vocabulary).astype(np.float32)


@dataclass(slots=True)
class SharedNoise:
    """Stands for `Noise` under `match`: one uniform an output position, which drafter and target both look at.

    `law(chosen)` is what the model at hand would draw from after the tokens that were chosen since position `start`;
    the token that the uniform picks from it gets noise that outweighs every score.
    """

    source: Enumerator
    law: Callable[[Tokens], Distribution]
    start: int
    chosen: Tokens = ()

    def gumbel(self, position: int, tokens: U64) -> F64:
        self.chosen = self.chosen[: position - self.start]
        for at in range(self.start + len(self.chosen), position + 1):
            self.chosen += (self.source.pick(Purpose.TOKEN, at, 0, self.law(self.chosen)),)
        return np.where(tokens == self.chosen[-1], 1e9, 0.0)


@dataclass(frozen=True, slots=True)
class Experiment:
    """`rounds` rounds of drafting k tokens from `draft` and verifying them by `rule` against `target`.

    branches: alternatives at one place, for trees. certain: the drafter proposes its likeliest tokens, which have no
    distribution, instead of drawing them.
    """

    rule: Rule
    target: TableModel
    draft: TableModel
    road: Road
    k: int
    rounds: int = 3
    start: Tokens = (0,)
    certain: bool = False
    branches: int = 1
    _known: dict[Tokens, float] = field(default_factory=dict, compare=False, repr=False)

    def play(self, source: Enumerator) -> Tokens:
        """What the rounds commit on one path of random answers: a sequence of its own, with a road of its own."""
        ledger, road = self.start, replace(self.road)
        for _ in range(self.rounds):
            ledger += self._round(ledger, road, source)
        return ledger[len(self.start) :]

    def _alone(self, ledger: Tokens, source: Enumerator) -> Tokens:
        return self._round(ledger, replace(self.road), source)

    def _round(self, ledger: Tokens, road: Road, source: Enumerator) -> Tokens:
        draft = self._draft(ledger, replace(road), source)
        prefixes = [tuple(prefix(ledger, draft, node)) for node in range(-1, len(draft))]
        logits = np.stack([self.target.logits(before) for before in prefixes])
        if self.rule == "match":
            noise = self._noise(self.target, ledger, source)
            return tuple(judge_by_match(draft, ledger, logits, road, noise).tokens(draft))
        return tuple(judge_by_ratio(self.rule, draft, ledger, logits, road, source).tokens(draft))

    def _draft(self, ledger: Tokens, road: Road, source: Enumerator) -> Draft:
        """Grown by the drafters' own code."""
        growth = Growth(self.k, self.branches)
        while growth.next():
            before = (*ledger, *growth.path())
            growth.extend(self._children(growth, ledger, before, road, source))
        return growth.draft

    def _children(
        self, growth: Growth, ledger: Tokens, before: Tokens, road: Road, source: Enumerator
    ) -> Sequence[Child]:
        logits, room = self.draft.logits(before), growth.room
        if self.certain:
            chances = road.probabilities(logits, before)
            best = np.argsort(-chances, kind="stable")[:room]
            return [Child(int(token), None, float(chances[token])) for token in best]
        if self.rule == "match":
            return matching(road, logits, before, room, self._noise(self.draft, before, source))
        return sampled(road, logits, before, room, RoundDraws(source, len(ledger)), len(growth.tokens))

    def _noise(self, model: TableModel, before: Tokens, source: Enumerator) -> Noise:
        """before: the tokens that the next choice follows; later ones also follow what the noise has chosen."""

        def law(chosen: Tokens) -> Distribution:
            return replace(self.road).probabilities(model.logits(before + chosen), before + chosen)

        return cast(Noise, SharedNoise(source, law, len(before) - self.road.prompt_length))

    def exact_law(self) -> dict[Tokens, float]:
        """What the rounds commit, every path of all rounds together: draws that share a name are seen to."""
        return law(self.play)

    def composed_law(self) -> dict[Tokens, float]:
        """The same, one round at a time, as if no two rounds shared a draw (`exact_law` tells whether that holds)."""
        mass: dict[Tokens, float] = {(): 1.0}
        for _ in range(self.rounds):
            longer: dict[Tokens, float] = defaultdict(float)
            for tokens, before in mass.items():
                for more, probability in law(partial(self._alone, self.start + tokens)).items():
                    longer[tokens + more] += before * probability
            mass = dict(longer)
        return mass

    def total_variation(self, committed: Mapping[Tokens, float]) -> float:
        """Distance between the law of what was committed and plain sampling's, jointly over the most tokens of it.

        What the rounds leave short is completed by plain sampling, which adds no error.
        """
        length = max(map(len, committed))
        plain = self.plain_law(length)
        mass: dict[Tokens, float] = defaultdict(float)
        for tokens, probability in committed.items():
            possible = self._plain_mass(tokens)
            for rest in product(range(self.target.vocabulary), repeat=length - len(tokens)):
                whole = tokens + rest
                mass[whole] += probability * (plain[whole] / possible if possible else 1.0)
                if not possible:
                    break  # an impossible beginning: wherever its mass goes, all of it is error
        return 0.5 * sum(abs(mass[whole] - plain[whole]) for whole in plain)

    def _plain_mass(self, tokens: Tokens) -> float:
        """Probability that plain sampling begins with `tokens`."""
        if not tokens:
            return 1.0
        if tokens not in self._known:
            before = self._plain_mass(tokens[:-1])
            prefix = self.start + tokens[:-1]
            p = replace(self.road).probabilities(self.target.logits(prefix), prefix)
            self._known.update({(*tokens[:-1], token): before * p[token] for token in range(len(p))})
        return self._known[tokens]

    def plain_law(self, length: int) -> dict[Tokens, float]:
        words = product(range(self.target.vocabulary), repeat=length)
        return {word: self._plain_mass(word) for word in words}
