"""Whole sequences: a target and a draft that are matrices, row t the law of the next token after token t.

The method touches models only through such rows, so what holds here holds for transformers. Exact by recursion and
dynamic programming, and by seeded simulation. The page computes the same in `page/math/chain.js`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from sooner.errors import InputError
from sooner.plan.formulas import expected_tokens
from sooner.sampling.road import F64

START = 0  # the token before the first


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Target P and draft Q, [V, V], rows that sum to 1."""

    P: F64
    Q: F64

    @property
    def both(self) -> F64:
        """min(P, Q): mass by which the draft's next token is accepted, by last token and next token."""
        return np.minimum(self.P, self.Q)

    @property
    def missing(self) -> F64:
        """(P - Q)+: mass that comes as a correction."""
        return np.maximum(self.P - self.Q, 0.0)

    @property
    def acceptance(self) -> F64:
        """Acceptance rate after each token [V]."""
        return np.asarray(self.both.sum(axis=1))

    @property
    def mean_acceptance(self) -> float:
        """Over the positions of an endless text."""
        return float(stationary(self.P) @ self.acceptance)


def random_target(vocabulary: int, seed: int, temperature: float = 0.7) -> F64:
    """Rows softmax(normal / temperature). Seed 2 with five tokens is the matrix of the published experiment."""
    if not 2 <= vocabulary <= 64:
        raise InputError(f"vocabulary is {vocabulary}, must be between 2 and 64")
    weights = np.exp(np.random.default_rng(seed).normal(0, 1, (vocabulary, vocabulary)) / temperature)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def blurred(P: F64, blur: float) -> Pair:
    """The target and a draft that mixes it with the uniform distribution: Q = (1 - blur) P + blur / V."""
    if not 0.0 <= blur <= 1.0:
        raise InputError(f"blur is {blur}, must be between 0 and 1")
    return Pair(P, (1.0 - blur) * P + blur / len(P))


def published_pair() -> Pair:
    """Five tokens, Q = 0.6 P + 0.4 uniform: 64 tokens, drafts of 4, 3.54 tokens a target call."""
    return blurred(random_target(5, 2), 0.4)


def moody_pair() -> Pair:
    """Two moods that last, four tokens each: in one the draft is nearly right, in the other mostly wrong."""
    stay, hard = 0.95, np.full(4, 0.25)
    easy, guess = np.array([0.94, 0.02, 0.02, 0.02]), np.array([0.91, 0.03, 0.03, 0.03])
    row_easy = np.concatenate([stay * easy, (1.0 - stay) * hard])
    row_hard = np.concatenate([(1.0 - stay) * easy, stay * hard])
    row_guess = np.concatenate([(1.0 - stay) * easy, stay * guess])
    draft = blurred(np.stack([row_easy] * 4 + [row_guess] * 4), 0.05).Q
    return Pair(np.stack([row_easy] * 4 + [row_hard] * 4), draft)


def stationary(transitions: F64) -> F64:
    """The law [V] that `transitions` leaves as it is: a least-squares solution of x T = x, sum x = 1."""
    size = len(transitions)
    system = np.vstack([transitions.T - np.eye(size), np.ones(size)])
    return np.asarray(np.linalg.lstsq(system, np.append(np.zeros(size), 1.0), rcond=None)[0])


def tokens_a_round(pair: Pair, k: int) -> F64:
    """Expected tokens of a round that starts after each token [V]: E_k = 1 + min(P, Q) E_{k-1}, E_0 = 1."""
    expected = np.ones(len(pair.P))
    for _ in range(check_length(k)):
        expected = 1.0 + pair.both @ expected
    return expected


def endless(pair: Pair, k: int) -> float:
    """Tokens a target call in an endless text: `tokens_a_round` over where rounds start in the long run."""
    starts = pair.P
    for _ in range(check_length(k)):
        starts = pair.missing + pair.both @ starts
    return float(stationary(starts) @ tokens_a_round(pair, k))


def expected_calls(pair: Pair, k: int, length: int, start: int = START) -> float:
    """Target calls for `length` tokens, the last round cut where they are complete; drafts are k long throughout.

    Dynamic programming over the tokens left: with j drafts to check and n tokens to go, either a correction ends the
    round or the next token is accepted; after the last draft comes the bonus.
    """
    check_length(k)

    @cache
    def calls(n: int) -> F64:
        return np.zeros(len(pair.P)) if n == 0 else 1.0 + walk(k, n)

    @cache
    def walk(j: int, n: int) -> F64:
        if n == 0:
            return np.zeros(len(pair.P))
        if j == 0:
            return np.asarray(pair.P @ calls(n - 1))
        return np.asarray(pair.missing @ calls(n - 1) + pair.both @ walk(j - 1, n - 1))

    for n in range(length):  # from short to long, so that the recursion stays shallow
        calls(n)
    return float(calls(length)[start])


def single_rate(alpha: float, k: int, length: int) -> float:
    """Tokens a call for `length` tokens if every position were accepted with alpha: `expected_tokens`, with an end."""
    constant = Pair(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[alpha, 1.0 - alpha]] * 2))
    return length / expected_calls(constant, k, length)


def frequencies(pair: Pair, length: int, start: int = START) -> F64:
    """How often each token comes in the target's first `length` tokens [V], exactly."""
    law, total = np.eye(len(pair.P))[start], np.zeros(len(pair.P))
    for _ in range(length):
        law = law @ pair.P
        total += law
    return total / length


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Tokens a target call, from the formula to the experiment, one step at a time."""

    formula: float  # 1 + alpha + ... + alpha^k at the mean acceptance
    formula_with_end: float  # the same, the last round cut at the length
    real_rows: float  # the pair's own rows, in an endless text
    real_rows_with_end: float  # the pair's own rows, cut at the length: what the experiment measures


def shortfall(pair: Pair, k: int, length: int) -> Shortfall:
    alpha = pair.mean_acceptance
    exact = length / expected_calls(pair, k, length)
    return Shortfall(expected_tokens(alpha, k), single_rate(alpha, k, length), endless(pair, k), exact)


@dataclass(frozen=True, slots=True)
class Simulated:
    """Frequencies of tokens [V] with their standard errors, and target calls of each sequence."""

    length: int
    plain: F64
    plain_error: F64
    speculative: F64
    speculative_error: F64
    calls: NDArray[np.int64]

    @property
    def tokens_per_call(self) -> float:
        return float(len(self.calls) * self.length / self.calls.sum())

    @property
    def tokens_per_call_error(self) -> float:
        """Of the ratio, from the spread of calls over sequences (delta method)."""
        mean = self.calls.mean()
        return float(self.length * self.calls.std(ddof=1) / mean**2 / np.sqrt(len(self.calls)))

    @property
    def saved(self) -> float:
        return 1.0 - float(self.calls.mean()) / self.length


def simulate(pair: Pair, k: int = 4, length: int = 64, sequences: int = 60_000, seed: int = 0) -> Simulated:
    """Plain and speculative sequences from START, independent of each other."""
    check_length(k)
    for name, value, most in (("length", length, 4096), ("sequences", sequences, 1_000_000)):
        if not 2 <= value <= most:
            raise InputError(f"{name} is {value}, must be between 2 and {most:,}")
    rng = np.random.default_rng(seed)
    plain = _plain(pair, length, sequences, rng)
    speculative, calls = _speculative(pair, k, length, sequences, rng)
    size = len(pair.P)
    return Simulated(length, *_frequencies(plain, size), *_frequencies(speculative, size), calls)


Tokens = NDArray[np.int64]


def _plain(pair: Pair, length: int, sequences: int, rng: np.random.Generator) -> Tokens:
    tokens = np.full((sequences, length + 1), START)
    for i in range(length):
        tokens[:, i + 1] = _next(pair.P, tokens[:, i], rng)
    return tokens[:, 1:]


def _speculative(
    pair: Pair, k: int, length: int, sequences: int, rng: np.random.Generator
) -> tuple[Tokens, NDArray[np.int64]]:
    """All sequences at once: each pass of the loop is one round of every sequence that is not complete."""
    tokens = np.full((sequences, length + 1 + k + 1), START)  # room for what a last round brings too many
    done, calls = np.zeros(sequences, np.int64), np.zeros(sequences, np.int64)
    while len(busy := np.flatnonzero(done < length)):
        calls[busy] += 1
        last, walking = tokens[busy, done[busy]], np.ones(len(busy), bool)
        for step in range(k + 1):
            here = busy[walking]
            following, kept = _verified(pair, last[walking], rng, bonus=step == k)
            done[here] += 1
            tokens[here, done[here]] = following
            last[walking] = following
            walking[walking] = kept
    return tokens[:, 1 : length + 1], calls


def _verified(pair: Pair, last: Tokens, rng: np.random.Generator, bonus: bool) -> tuple[Tokens, NDArray[np.bool_]]:
    """One position of a round: the token after `last`, and whether it was accepted, so that the round goes on.

    Drafting here instead of ahead changes nothing: a drafted token is looked at only where all before it were kept.
    """
    if bonus:
        return _next(pair.P, last, rng), np.zeros(len(last), bool)
    drafted = _next(pair.Q, last, rng)
    kept = rng.random(len(last)) <= np.minimum(1.0, pair.P[last, drafted] / pair.Q[last, drafted])
    corrected = drafted.copy()
    corrected[~kept] = _next(pair.missing, last[~kept], rng)
    return corrected, kept


def _next(rows: F64, last: Tokens, rng: np.random.Generator) -> Tokens:
    """Draws from rows[last], which need not sum to 1."""
    cumulated = rows.cumsum(axis=1)[last]
    return np.asarray((rng.random(len(last))[:, None] * cumulated[:, -1:] >= cumulated).sum(axis=1))


def _frequencies(tokens: Tokens, size: int) -> tuple[F64, F64]:
    """Mean over sequences and its standard error; neighbours in a sequence are not independent, sequences are."""
    each = np.stack([(tokens == token).mean(axis=1) for token in range(size)], axis=1)
    return each.mean(axis=0), each.std(axis=0, ddof=1) / np.sqrt(len(each))


def check_length(k: int) -> int:
    if not 0 <= k <= 64:
        raise InputError(f"draft length is {k}, must be between 0 and 64")
    return k
