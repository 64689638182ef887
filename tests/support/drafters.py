"""Drafters without a model: some know the answer, some are always wrong, all keep the contract."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np

from sooner.draft.ngram import NgramDrafter
from sooner.draft.protocol import Ask, Drafter
from sooner.types import Draft, Ledger


class Stateless:
    """A drafter whose proposal depends on the ask alone, a deterministic chain unless `draft` is overridden."""

    name = "stateless"
    samples = False

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [self.draft(ask) for ask in asks]

    def draft(self, ask: Ask) -> Draft:
        return Draft.chain(self.tokens(ask))

    def tokens(self, ask: Ask) -> Sequence[int]:
        raise NotImplementedError

    def commit(self, key: int, ledger: Ledger) -> None:
        pass

    def cached(self, key: int) -> int:
        return 0

    def forget(self, key: int) -> None:
        pass


class OracleDrafter(Stateless):
    """Knows the whole answer of each prompt, and proposes the tokens that come next in it."""

    name = "oracle"

    def __init__(self, answers: Mapping[tuple[int, ...], Sequence[int]]) -> None:
        self._answers = answers

    def tokens(self, ask: Ask) -> Sequence[int]:
        done = ask.ledger.output_length
        return self._answers[ask.request.prompt][done : done + ask.limit]


class ConstantDrafter(Stateless):
    """The same token, over and over."""

    name = "constant"

    def __init__(self, token: int) -> None:
        self._token = token

    def tokens(self, ask: Ask) -> Sequence[int]:
        return [self._token] * ask.limit


class RandomDrafter(Stateless):
    """Any tokens, as many as it may; the ledger decides which."""

    name = "random"

    def __init__(self, vocabulary: int) -> None:
        self._vocabulary = vocabulary

    def tokens(self, ask: Ask) -> Sequence[int]:
        rng = random.Random(f"{ask.ledger.tokens}")
        return [rng.randrange(self._vocabulary) for _ in range(ask.limit)]


class OffByOneDrafter(Stateless):
    """What another drafter proposes, each id one too high: always wrong by one where the other one is right."""

    name = "off by one"

    def __init__(self, vocabulary: int, other: Drafter | None = None) -> None:
        self._vocabulary = vocabulary
        self._other = other or NgramDrafter(longest=3, shortest=1)

    def tokens(self, ask: Ask) -> Sequence[int]:
        return [(token + 1) % self._vocabulary for token in self._other.propose([ask])[0].tokens]

    def forget(self, key: int) -> None:
        self._other.forget(key)


class SamplingDrafter(Stateless):
    """Samples each token from a random distribution, which the draft carries; some of its tokens are impossible."""

    name = "sampling"
    samples = True

    def __init__(self, vocabulary: int) -> None:
        self._vocabulary = vocabulary

    def draft(self, ask: Ask) -> Draft:
        rng = np.random.default_rng(ask.ledger.tokens)
        weights = rng.random((ask.limit, self._vocabulary)) * (rng.random((ask.limit, self._vocabulary)) < 0.6)
        weights[:, 0] += 0.1  # never all zero
        probs = [row / row.sum() for row in weights]
        return Draft.chain([int(rng.choice(self._vocabulary, p=q)) for q in probs], probs)


class BushDrafter(Stateless):
    """A random tree of random tokens; the ledger decides which. With `answers` the right path is among its branches."""

    name = "bush"
    trees = True

    def __init__(self, vocabulary: int, answers: Mapping[tuple[int, ...], Sequence[int]] | None = None) -> None:
        self._vocabulary = vocabulary
        self._oracle = OracleDrafter(answers) if answers is not None else None

    def draft(self, ask: Ask) -> Draft:
        rng = random.Random(f"{ask.ledger.tokens}")
        right = list(self._oracle.tokens(ask))[: -(-ask.limit // ask.branches)] if self._oracle else []
        tokens, parents = list[int](), list[int]()
        while len(tokens) < ask.limit - len(right):  # decoys come first, and have descendants of their own
            parent, token = rng.randrange(-1, len(tokens)), rng.randrange(self._vocabulary)
            free = parents.count(parent) < ask.branches - (parent == -1 and bool(right))
            if free and (parent, token) not in zip(parents, tokens) and (parent, token) != (-1, *right[:1]):
                tokens.append(token)
                parents.append(parent)
            elif ask.branches == 1 and right:
                break
        for place, token in enumerate(right):
            parents.append(len(tokens) - 1 if place else -1)
            tokens.append(token)
        return Draft(tuple(tokens), tuple(parents), (None,) * len(tokens))
