"""Exactness by enumeration: the joint law of what a rule commits, computed path by path through the engine's own code.

Every random answer is named (`RoundDraws`). The enumerator treats each name as one uniform number and follows every
outcome, remembering for each name the interval that earlier answers have left. So it also sees what no single round
shows: two draws that share a name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import pairwise, product
from typing import TypeVar, cast

import numpy as np

from sooner.draft.chain import sample_draft
from sooner.engine.judge import judge_by_match, judge_by_ratio
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


@dataclass(frozen=True, slots=True)
class SharedNoise:
    """Stands for `Noise` under `match`: one uniform an output position, which drafter and target both look at.

    `law(position)` is what the model at hand would draw from there; the token that the uniform picks from it gets noise
    that outweighs every score.
    """

    source: Enumerator
    law: Callable[[int], Distribution]

    def gumbel(self, position: int, tokens: U64) -> F64:
        return np.where(tokens == self.source.pick(Purpose.TOKEN, position, 0, self.law(position)), 1e9, 0.0)


@dataclass(frozen=True, slots=True)
class Experiment:
    """`rounds` rounds of drafting k tokens from `draft` and verifying them by `rule` against `target`.

    certain: the drafter proposes its likeliest token, which has no distribution, instead of drawing one.
    """

    rule: Rule
    target: TableModel
    draft: TableModel
    road: Road
    k: int
    rounds: int = 3
    start: Tokens = (0,)
    certain: bool = False
    _known: dict[Tokens, float] = field(default_factory=dict, compare=False, repr=False)

    @property
    def length(self) -> int:
        """The most tokens that the rounds can commit."""
        return self.rounds * (self.k + 1)

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
        logits = np.stack([self.target.logits((*ledger, *draft.tokens[:i])) for i in range(self.k + 1)])
        if self.rule == "match":
            noise = self._noise(self.target, ledger + draft.tokens, source)
            return tuple(judge_by_match(draft, ledger, logits, road, noise).tokens(draft))
        return tuple(judge_by_ratio(self.rule, draft, ledger, logits, road, source).tokens(draft))

    def _draft(self, ledger: Tokens, road: Road, source: Enumerator) -> Draft:
        tokens: Tokens = ()
        probs: list[Distribution | None] = []
        for index in range(self.k):
            prefix = ledger + tokens
            logits, q = self.draft.logits(prefix), None
            if self.certain:
                token = int(road.probabilities(logits, prefix).argmax())
            elif self.rule == "match":
                token = road.choose(logits, prefix, self._noise(self.draft, prefix, source))
            else:
                token, q = sample_draft(road, logits, prefix, index, source)
            tokens = (*tokens, token)
            probs.append(q)
        return Draft.chain(tokens, probs)

    def _noise(self, model: TableModel, tokens: Tokens, source: Enumerator) -> Noise:
        """tokens: ledger and draft, of which a position's choice sees what comes before it."""

        def law(position: int) -> Distribution:
            prefix = tokens[: self.road.prompt_length + position]
            return replace(self.road).probabilities(model.logits(prefix), prefix)

        return cast(Noise, SharedNoise(source, law))

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
        """Distance between the law of what was committed and plain sampling's, jointly over `length` tokens.

        What the rounds leave short is completed by plain sampling, which adds no error.
        """
        plain = self.plain_law()
        mass: dict[Tokens, float] = defaultdict(float)
        for tokens, probability in committed.items():
            possible = self._plain_mass(tokens)
            for rest in product(range(self.target.vocabulary), repeat=self.length - len(tokens)):
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

    def plain_law(self) -> dict[Tokens, float]:
        words = product(range(self.target.vocabulary), repeat=self.length)
        return {word: self._plain_mass(word) for word in words}
