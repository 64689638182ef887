"""`check_drafter` tells whether a drafter keeps the contract of `sooner.draft.protocol`. It needs no model.

It plays rounds over random ledgers, as an engine would: several sequences at once, any limit and rule, proposals
that are accepted in part and followed by other tokens, sequences that skip rounds or end, prompts from one token up to
the whole context. A drafter that breaks a rule may still be harmless to the text: verification sees to that.
But it would crash, leak between requests, or make answers of one seed depend on the batch.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from sooner.draft.protocol import Ask, Drafter, Features, Target
from sooner.errors import InputError
from sooner.types import Distribution, Draft, Ledger, Request, Rule, SamplingParams

BATCH = 4  # sequences alive at once
MOST = 8  # the largest limit
PIECE = 48  # positions of a prompt that are read at once
RULES: tuple[Rule, ...] = ("match", "rejection", "block")
SUM_TOLERANCE = 1e-9
TARGET = Target(vocabulary=64, context=256, eos=frozenset({0}), layers=8, width=32)


class ContractError(AssertionError):
    """A drafter broke the rule that the message names, in the situation that it shows."""


def check_drafter(
    drafter: Drafter | Callable[[Target], Drafter], target: Target = TARGET, *, rounds: int = 200, seed: int = 0
) -> None:
    """Raises ContractError at the first rule that is broken.

    drafter: a class, or whatever makes a drafter from a Target; then proposals are also compared with those of a fresh
    one. A ready drafter is compared with itself under fresh keys. target: what the drafter is told; let its context
    exceed the drafter's own to test that limit. rounds: each takes at most BATCH + 1 proposals. The same seed plays the
    same game. Drafts are compared exactly, so let a model compute in a way that does not depend on its batch.
    """
    if target.context < MOST + 2:
        raise InputError(f"context is {target.context}, must be at least {MOST + 2} to play rounds in")
    game = _Game(_maker(drafter, target), target, random.Random(seed))
    for _ in range(rounds):
        game.play_round()
    game.finish(list(game.sequences))


def _maker(drafter: Drafter | Callable[[Target], Drafter], target: Target) -> Callable[[], Drafter]:
    if hasattr(drafter, "propose") and not isinstance(drafter, type):
        ready = cast(Drafter, drafter)
        return lambda: ready
    factory = cast(Callable[[Target], Drafter], drafter)
    return lambda: factory(target)


@dataclass(slots=True, eq=False)
class _Sequence:
    key: int
    request: Request
    ledger: Ledger
    alphabet: Sequence[int]  # few tokens, so that runs come back and lookups have something to find


class _Game:
    def __init__(self, make: Callable[[], Drafter], target: Target, rng: random.Random) -> None:
        self.make, self.target, self.rng = make, target, rng
        self.drafter = make()
        self.sequences: list[_Sequence] = []
        self.keys = count()
        _require(isinstance(self.drafter.name, str) and self.drafter.name != "", "a drafter has a name", self.drafter)
        _require(isinstance(self.drafter.samples, bool), "`samples` is True or False", self.drafter)

    def play_round(self) -> None:
        while len(self.sequences) < BATCH:
            self.sequences.append(self.new_sequence())
            self.begin(self.drafter, self.sequences[-1].key, self.sequences[-1].ledger)
        rng = self.rng
        asking = rng.sample(self.sequences, rng.randint(1, BATCH))
        asks = [self.ask(sequence) for sequence in asking]
        drafts = self.propose(self.drafter, asks)
        for ask, draft in zip(asks, drafts):
            _check_draft(self.drafter, ask, draft, self.target.vocabulary)
        self.compare(asks, drafts, rng.randrange(len(asks)))
        for sequence, draft in zip(asking, drafts):
            self.commit(sequence, self.verdict(sequence, draft))
        for sequence in self.sequences:
            if sequence not in asking and rng.random() < 0.5:  # it decodes plainly for a while
                self.commit(sequence, rng.choices(sequence.alphabet, k=rng.randint(1, MOST)))
        self.finish([s for s in self.sequences if self.room(s) < MOST + 1 or rng.random() < 0.03])

    def new_sequence(self) -> _Sequence:
        rng, key = self.rng, next(self.keys)
        most = self.target.context - MOST - 1
        length = rng.choice([1, 2, rng.randint(1, min(24, most)), rng.randint(1, most), most])
        if isinstance(self.drafter, Features):
            length = max(length, 2)  # a pass over the prompt comes before the first proposal
        alphabet = rng.sample(range(self.target.vocabulary), min(rng.choice([1, 2, 5, 16]), self.target.vocabulary))
        prompt = rng.choices(alphabet, k=length)
        params = SamplingParams(temperature=rng.choice([0.0, 0.8]), seed=key, max_tokens=self.target.context - length)
        request = Request(f"check-{key}", tuple(prompt), params, seed=key, seeded=True, eos=self.target.eos)
        return _Sequence(key, request, Ledger(prompt, length), alphabet)

    def begin(self, drafter: Drafter, key: int, ledger: Ledger) -> None:
        """As an engine reads a prompt, in pieces: for drafters that draft from features."""
        if isinstance(drafter, Features):
            prompt = ledger.tokens[:-1]  # the pass over it chose the last token
            known = _call(drafter, "adopt", key, prompt)
            within = isinstance(known, int) and 0 <= known < len(prompt)
            _require(within, "adopt tells of fewer positions than there are", drafter, None, f"{known}, {len(prompt)}")
            for start in range(known, len(ledger) - 1, PIECE):
                self.show(drafter, key, ledger, start, min(start + PIECE, len(ledger) - 1))

    def show(self, drafter: Drafter, key: int, ledger: Ledger, start: int, end: int) -> None:
        """Features of positions start..end-1, a function of all tokens up to each of them."""
        if isinstance(drafter, Features):
            states = _states(ledger.tokens[:end], len(drafter.taps), self.target.width)
            _call(drafter, "observe", key, ledger.tokens, start, states[start:])

    def room(self, sequence: _Sequence) -> int:
        return self.target.context - len(sequence.ledger)

    def ask(self, sequence: _Sequence) -> Ask:
        limit, rule = self.rng.randint(1, MOST), self.rng.choice(RULES)
        branches = self.rng.choice([1, 1, 2, MOST]) if rule != "block" else 1
        return Ask(sequence.key, sequence.request, sequence.ledger, limit, rule, branches=branches)

    def propose(self, drafter: Drafter, asks: Sequence[Ask]) -> list[Draft]:
        before = [list(ask.ledger.tokens) for ask in asks]
        drafts: list[Draft] = _call(drafter, "propose", asks)
        _require(len(drafts) == len(asks), "propose returns one Draft for each ask", drafter, asks[0])
        unchanged = all(ask.ledger.tokens == tokens for ask, tokens in zip(asks, before))
        _require(unchanged, "a drafter never changes a ledger", drafter, asks[0])
        return drafts

    def compare(self, asks: Sequence[Ask], drafts: Sequence[Draft], i: int) -> None:
        """The i-th draft must be what a drafter without a past proposes for that ledger alone.

        A sampled draft is let off: its randomness may come from anywhere.
        """
        if any(q is not None for q in drafts[i].probs):
            return
        if _same(alone := self.afresh([asks[i]])[0], drafts[i]):
            return
        ask, shown = asks[i], f"proposed {drafts[i].tokens}, without a past {alone.tokens}"
        again = self.afresh([ask])[0]
        _require(_same(again, alone), "the same ledger always gives the same draft", self.drafter, ask, shown)
        together = self.afresh(asks)[i]
        _require(_same(together, alone), "a draft does not depend on its neighbours", self.drafter, ask, shown)
        _require(False, "nothing but the ledger counts: no rejected draft, no other sequence", self.drafter, ask, shown)

    def afresh(self, asks: Sequence[Ask]) -> list[Draft]:
        """The same asks to a fresh drafter, or to the same one under fresh keys."""
        drafter = self.make()
        fresh = [replace(ask, key=next(self.keys)) for ask in asks]
        for ask in fresh:
            self.begin(drafter, ask.key, ask.ledger)
        drafts = self.propose(drafter, fresh)
        for ask in fresh:
            _call(drafter, "forget", ask.key)
        return drafts

    def verdict(self, sequence: _Sequence, draft: Draft) -> list[int]:
        """A random path down the draft, then a token that is none of its continuations."""
        rng, tokens, node = self.rng, [], -1
        while (children := draft.children(node)) and rng.random() < 0.7:
            node = rng.choice(children)
            tokens.append(draft.tokens[node])
        drafted = {draft.tokens[child] for child in children}
        others = [token for token in sequence.alphabet if token not in drafted]
        return [*tokens, rng.choice(others or range(self.target.vocabulary))]

    def commit(self, sequence: _Sequence, tokens: Sequence[int]) -> None:
        start = len(sequence.ledger) - 1
        sequence.ledger.tokens += tokens
        _call(self.drafter, "commit", sequence.key, sequence.ledger)
        self.show(self.drafter, sequence.key, sequence.ledger, start, len(sequence.ledger) - 1)
        cached, length = _call(self.drafter, "cached", sequence.key), len(sequence.ledger)
        shown = f"it holds {cached} of {length}"
        _require(
            0 <= cached <= length, "after commit, cached(key) is at most the ledger's length", self.drafter, None, shown
        )

    def finish(self, sequences: Sequence[_Sequence]) -> None:
        for sequence in sequences:
            self.sequences.remove(sequence)
            for _ in range(2):  # a request may end before it ever drafted: forgetting an unknown key is harmless
                _call(self.drafter, "forget", sequence.key)
            cached = _call(self.drafter, "cached", sequence.key)
            _require(cached == 0, "cached(key) is 0 once it is forgotten", self.drafter)


def _states(tokens: Sequence[int], taps: int, width: int) -> Tensor:
    """Made-up hidden states [n, taps, width]: of each token, and less and less of those before it."""
    state, states = torch.zeros(taps, width), []
    for token in tokens:
        random = torch.Generator().manual_seed(token)
        state = 0.7 * state + torch.randn(taps, width, generator=random)
        states.append(state)
    return torch.stack(states)


def _check_draft(drafter: Drafter, ask: Ask, draft: Draft, vocabulary: int) -> None:
    """Everything that one draft must be, whatever came before it."""
    _require(isinstance(draft, Draft), "propose returns Drafts", drafter, ask, repr(draft))
    shown = f"proposed {draft.tokens}"
    _require(len(draft) <= ask.limit, "never more tokens than the limit", drafter, ask, shown)
    inside = all(isinstance(token, int) and 0 <= token < vocabulary for token in draft.tokens)
    _require(inside, f"tokens are ints from 0 to {vocabulary - 1}", drafter, ask, shown)
    _require(draft.branches <= ask.branches, "never more children of one token than branches", drafter, ask, shown)
    siblings = set(zip(draft.parents, draft.tokens))
    _require(len(siblings) == len(draft), "children of one node differ", drafter, ask, f"{shown}, {draft.parents}")
    for token, q in zip(draft.tokens, draft.probs):
        if q is not None:
            _require(drafter.samples, "a drafter that carries probs says samples = True", drafter, ask)
            for rule, kept in _distribution_rules(q, token, vocabulary):
                _require(kept, rule, drafter, ask, f"token {token}")


def _distribution_rules(q: Distribution, token: int, vocabulary: int) -> Iterator[tuple[str, bool]]:
    """What must hold of q, each rule only looked at when those before it hold."""
    float64 = isinstance(q, np.ndarray) and q.dtype == np.float64
    yield f"probs are float64 arrays of shape ({vocabulary},)", float64 and q.shape == (vocabulary,)
    yield "probs are finite and not negative", bool(np.isfinite(q).all() and (q >= 0.0).all())
    yield f"probs sum to 1 within {SUM_TOLERANCE}", abs(float(q.sum()) - 1.0) <= SUM_TOLERANCE
    yield "a token that was drawn from probs is possible in them", float(q[token]) > 0.0


def _call(drafter: Drafter, method: str, *arguments: Any) -> Any:
    try:
        return getattr(drafter, method)(*arguments)
    except Exception as error:
        raise ContractError(f"{drafter.name!r} breaks a rule: {method} raised {error!r}") from error


def _same(a: Draft, b: Draft) -> bool:
    return (a.tokens, a.parents) == (b.tokens, b.parents)


def _require(kept: bool, rule: str, drafter: Drafter, ask: Ask | None = None, shown: str = "") -> None:
    if not kept:
        situation = [part for part in (shown, _example(ask) if ask else "") if part]
        raise ContractError("; ".join([f"{drafter.name!r} breaks a rule: {rule}", *situation]))


def _example(ask: Ask) -> str:
    tokens = ask.ledger.tokens
    tail = f"{tokens}" if len(tokens) <= 32 else f"[... {', '.join(map(str, tokens[-32:]))}]"
    return f"limit {ask.limit}, branches {ask.branches}, rule {ask.rule!r}, ledger of {len(tokens)}: {tail}"
