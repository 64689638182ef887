"""The distributions that a real target and a real drafter choose from, recorded prefix by prefix, and their laws.

A prefix is written relative to the prompt. The recording starts with the prompt's own row, follows every token that
target or drafter can choose, and so needs a road that leaves few: `MOST`. A deterministic proposal is recorded as all
mass on its token.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TypeVar

import numpy as np

from sooner.cache.paged import Table, pages_for
from sooner.certify.laws import Enumerator, Tokens, law
from sooner.certify.subject import Subject
from sooner.draft.protocol import Ask, Drafter
from sooner.engine.judge import STOCHASTIC
from sooner.models.runner import Span, forward
from sooner.plan.formulas import acceptance_rate
from sooner.sampling.draws import RoundDraws
from sooner.sampling.road import Road
from sooner.types import Distribution, Draft, Ledger, Request, Rule
from sooner.verify.rejection import proposal

MOST = 8  # tokens that a road may leave of one row
SPANS = 64  # rows of one recording pass: bounds its memory

T = TypeVar("T")
_keys = count(1 << 40)  # of sequences that exist for a drafter alone; an engine's own keys start at 0


class TooWideError(ValueError):
    """A row leaves more tokens than the road promised: what was recorded is not what was sampled from."""


@dataclass(frozen=True, slots=True)
class Rows:
    """p[prefix] and q[prefix], float64 [V].

    q begins after the first token, as a pass over a prompt drafts nothing, and lacks prefixes where a drafter declines.
    """

    p: Mapping[Tokens, Distribution]
    q: Mapping[Tokens, Distribution]

    def words(self, length: int) -> dict[Tokens, float]:
        """Plain sampling's joint law of the first `length` tokens."""
        return self.complete({(): 1.0}, length)

    def complete(self, words: Mapping[Tokens, float], length: int) -> dict[Tokens, float]:
        """Brings every word to `length` by plain sampling; one that the target cannot begin with stays as it is."""
        done: dict[Tokens, float] = defaultdict(float)
        for word, mass in words.items():
            if len(word) == length or word not in self.p:
                done[word] += mass
                continue
            row = self.p[word]
            for longer, part in self.complete({(*word, t): mass * row[t] for t in support(row)}, length).items():
                done[longer] += part
        return done

    def rounds(self, rule: Rule, k: int) -> dict[tuple[Tokens, int], float]:
        """Law of (tokens, accepted) after the first round: the prompt's own token, then what the rule commits."""
        result: dict[tuple[Tokens, int], float] = {}
        for first, mass in self.words(1).items():
            for (tokens, accepted), part in law(partial(self._round, rule, k, first)).items():
                result[first + tokens, accepted] = mass * part
        return result

    def _round(self, rule: Rule, k: int, start: Tokens, source: Enumerator) -> tuple[Tokens, int]:
        draws, tokens = RoundDraws(source, len(start)), start
        while tokens in self.q and len(tokens) < len(start) + k:
            tokens = (*tokens, draws.draft(len(tokens) - len(start), self.q[tokens]))
        drafted = tokens[len(start) :]
        draft = Draft.chain(drafted, [self.q[start + drafted[:i]] for i in range(len(drafted))])
        verdict = STOCHASTIC[rule](draft, lambda node: self.p[start + drafted[: node + 1]], draws)
        return tuple(verdict.tokens(draft)), len(verdict.path)

    def overlap(self) -> float:
        """1 - TV of the first drafted position, averaged over the token before it: what `rejection` accepts there."""
        firsts = [(first, mass) for first, mass in self.words(1).items() if first in self.q]
        return sum(mass * acceptance_rate(self.p[first], self.q[first]) for first, mass in firsts)


def support(row: Distribution) -> list[int]:
    """The tokens that a row can give. Raises TooWideError where they are more than MOST."""
    tokens = np.flatnonzero(row)
    if len(tokens) > MOST:
        raise TooWideError(f"a row leaves {len(tokens)} tokens, the road at most {MOST}")
    return [int(token) for token in tokens]


def record(subject: Subject, request: Request, drafter: Drafter | None = None) -> Rows:
    """Rows for all that max_tokens allow; q, from the drafter's own proposals, for a first round that fills them.

    A drafter that samples is asked for one token after each prefix; one that does not for its whole chain at once, as
    what it proposes second may be another thing than what it proposes once the first is in the ledger.
    """
    target = Target(subject, request)
    vocabulary = subject.decoder.config.vocabulary
    p: dict[Tokens, Distribution] = {}
    q: dict[Tokens, Distribution] = {}
    level: list[Tokens] = [()]
    for depth in range(request.max_tokens):
        p |= zip(level, target.read(level), strict=True)
        if drafter and (depth == 1 or (drafter.samples and 1 < depth < request.max_tokens - 1)):
            limit = 1 if drafter.samples else request.max_tokens - 2
            q |= proposals(drafter, request, level, limit, vocabulary)
        following = {w: sorted({*support(p[w]), *(support(q[w]) if w in q else ())}) for w in level}
        level = [(*word, token) for word, tokens in following.items() for token in tokens]
    return Rows(p, q)


def proposals(
    drafter: Drafter, request: Request, words: Sequence[Tokens], limit: int, vocabulary: int
) -> dict[Tokens, Distribution]:
    """q after each word and after each token that is drafted behind it: the drafter sees sequences of their own."""
    ledgers = [Ledger([*request.prompt, *word], len(request.prompt)) for word in words]
    asks = [Ask(next(_keys), request, ledger, limit, "block") for ledger in ledgers]
    drafts = [draft for chunk in _chunks(asks) for draft in _asked(drafter, chunk)]
    return {
        word + draft.tokens[:node]: proposal(draft, node, vocabulary)
        for word, draft in zip(words, drafts)
        for node in range(len(draft))
    }


def _asked(drafter: Drafter, asks: Sequence[Ask]) -> list[Draft]:
    drafts = drafter.propose(asks)
    for ask in asks:
        drafter.forget(ask.key)
    return drafts


class Target:
    """The target's distributions after words: each is read behind the prompt, which they share."""

    def __init__(self, subject: Subject, request: Request) -> None:
        self._decoder, self._request = subject.decoder, request
        prompt = request.prompt
        self._cache = subject.decoder.new_cache(pages_for(len(prompt)) + 2 * SPANS)
        self._table = Table()
        if len(prompt) > 1:
            forward(self._decoder, self._cache, [Span(self._table, prompt[:-1], wants=0)])

    def read(self, words: Sequence[Tokens]) -> list[Distribution]:
        return [row for chunk in _chunks(words) for row in self._pass(chunk)]

    def _pass(self, words: Sequence[Tokens]) -> list[Distribution]:
        prompt = self._request.prompt
        tables = [self._cache.share(self._table, self._table.length) for _ in words]
        spans = [Span(table, [prompt[-1], *word]) for table, word in zip(tables, words)]
        logits = forward(self._decoder, self._cache, spans)
        for table in tables:
            self._cache.release(table)
        road = Road.of(self._request)
        return [road.probabilities(rows[0], [*prompt, *word]) for rows, word in zip(logits, words)]


def _chunks(items: Sequence[T]) -> list[Sequence[T]]:
    return [items[start : start + SPANS] for start in range(0, len(items), SPANS)]
