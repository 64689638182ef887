"""The sampling road: logits of one row -> scores over the tokens that survive. The only place where that happens.

One order, for the target and for every drafter: logit bias, repetition penalty (prompt and output), presence and
frequency penalties (output), bad words, minimum length, structure, temperature, top-k, top-p on what top-k left,
min-p. "Output" is the committed tokens plus the drafted tokens before the row: the road is a function of the row's
prefix, so a rejected token never leaves a trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sooner.sampling.noise import Noise
from sooner.types import Request, SamplingParams, Structure

if TYPE_CHECKING:  # a backend may be anything; this module needs no torch
    from sooner.kernels.interface import Chooser

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

RANKED = 256  # tokens of a row that can become branches of a draft


class NumericalError(ArithmeticError):
    """A row of logits holds NaN or +inf, or the options left no token to choose."""


class NoTokenError(NumericalError):
    """The options or the structure leave no token, or the structure cannot be followed any further."""


@dataclass(frozen=True, slots=True)
class Road:
    """One request's road. stop_ids are masked until min_tokens; bad_words are token sequences that may not occur.

    structure: tells which tokens may come next; a form that the whole output has to have.
    """

    params: SamplingParams
    prompt_length: int
    stop_ids: tuple[int, ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()
    structure: Structure | None = None

    @classmethod
    def of(cls, request: Request) -> Road:
        stops = tuple(sorted(request.stop_ids))
        return cls(request.params, len(request.prompt), stops, request.bad_words, request.structure)

    @property
    def adjusts(self) -> bool:
        """Whether `adjust` can change a row."""
        p = self.params
        return bool(p.logit_bias or self.bad_words or p.min_tokens or self.structure) or (
            (p.repetition_penalty, p.presence_penalty, p.frequency_penalty) != (1.0, 0.0, 0.0)
        )

    def adjust(self, logits: F32, prefix: Sequence[int]) -> F32:
        """The part of the road that depends on history. logits [V], prefix: every token before this row's choice."""
        if not self.adjusts:
            return logits
        row = logits.copy()
        for token, bias in self.params.logit_bias.items():
            row[token] += bias
        self._penalise(row, prefix)
        for word in self.bad_words:
            if tuple(prefix[len(prefix) - len(word) + 1 :]) == word[:-1]:
                row[word[-1]] = -np.inf
        if len(prefix) - self.prompt_length < self.params.min_tokens:
            row[list(self.stop_ids)] = -np.inf
        if self.structure and (allowed := self.structure.allowed(prefix[self.prompt_length :])) is not None:
            row[~allowed] = -np.inf
        return row

    def _penalise(self, row: F32, prefix: Sequence[int]) -> None:
        p = self.params
        if p.repetition_penalty != 1.0:
            seen = np.unique(np.asarray(prefix, np.int64))
            values = row[seen]
            row[seen] = np.where(values > 0, values / p.repetition_penalty, values * p.repetition_penalty)
        if p.presence_penalty or p.frequency_penalty:
            output, counts = np.unique(np.asarray(prefix[self.prompt_length :], np.int64), return_counts=True)
            row[output] -= (p.presence_penalty + p.frequency_penalty * counts).astype(np.float32)

    def scores(self, adjusted: F32) -> F64:
        """Temperature and truncation on an adjusted row: logits / temperature, -inf where a token was cut. [V]."""
        p = self.params
        scores = adjusted.astype(np.float64) / p.temperature
        if 0 < p.top_k < len(scores) or p.top_p < 1.0:
            scores = self._truncate(scores)
        if p.min_p > 0.0:
            scores[scores < scores.max() + np.log(p.min_p)] = -np.inf
        return scores

    def _truncate(self, scores: F64) -> F64:
        """top-k, then the smallest set of what is left that holds top_p of its mass; equal scores by lowest id."""
        k = self.params.top_k
        if 0 < k < len(scores):  # sorts only what may be among the k best: a whole vocabulary takes milliseconds
            best = np.flatnonzero(scores >= np.partition(scores, -k)[-k])
            order = best[np.argsort(-scores[best], kind="stable")][:k]
        else:
            order = np.argsort(-scores, kind="stable")
        if self.params.top_p < 1.0:
            mass = np.exp(scores[order] - scores[order[0]]).cumsum()
            order = order[: int(np.searchsorted(mass, self.params.top_p * mass[-1])) + 1]
        kept = np.full_like(scores, -np.inf)
        kept[order] = scores[order]
        return kept

    def probabilities(self, logits: F32, prefix: Sequence[int]) -> F64:
        """The distribution [V] that plain sampling draws from, summing to 1. Greedy puts all mass on the argmax."""
        adjusted = self.adjust(logits, prefix)
        best = greatest(adjusted)
        if self.params.greedy:
            point = np.zeros(len(adjusted))
            point[best] = 1.0
            return point
        scores = self.scores(adjusted)
        weights = np.exp(scores - scores.max())
        return np.asarray(weights / weights.sum())

    def choose(self, logits: F32, prefix: Sequence[int], noise: Noise, fast: Chooser | None = None) -> int:
        """The token of seed-exact sampling: argmax of score + Gumbel noise, or of the logit at temperature 0.

        fast: a backend's own way to the same token, asked first.
        """
        adjusted = self.adjust(logits, prefix)
        position = len(prefix) - self.prompt_length
        if fast is not None and not self.params.greedy:  # NumPy's argmax is as fast as a call
            token = self._choose_fast(fast, adjusted, noise, position)
            if token is not None:
                return token
        best = greatest(adjusted)
        if self.params.greedy:
            return best
        scores = self.scores(adjusted)
        alive = np.flatnonzero(scores > -np.inf)
        gumbel = noise.gumbel(position, alive.astype(np.uint64))
        return int(alive[int((scores[alive] + gumbel).argmax())])

    def rank(self, logits: F32, prefix: Sequence[int], noise: Noise) -> dict[int, float]:
        """The likeliest tokens and the share of each in being chosen: the softmax of what `choose` maximises.

        For drafts, where a rough answer does: at most RANKED tokens are looked at, and truncation sees no others.
        """
        adjusted = self.adjust(logits, prefix)
        greatest(adjusted)  # or raises
        few = min(RANKED, len(adjusted))
        tokens = np.sort(np.argpartition(adjusted, -few)[-few:])
        greedy, few_logits = self.params.greedy, adjusted[tokens]
        values = few_logits.astype(np.float64) if greedy else self.scores(few_logits)
        alive = values > -np.inf
        tokens, values = tokens[alive], values[alive]
        if not greedy:
            values += noise.gumbel(len(prefix) - self.prompt_length, tokens.astype(np.uint64))
        shares = np.exp(values - values.max())
        shares /= shares.sum()
        return {int(token): float(share) for token, share in zip(tokens, shares)}

    def _choose_fast(self, fast: Chooser, adjusted: F32, noise: Noise, position: int) -> int | None:
        p = self.params
        return fast(
            adjusted, temperature=p.temperature, top_k=p.top_k, top_p=p.top_p, min_p=p.min_p,
            seed=noise.seed, sample=noise.sample, position=position,
        )  # fmt: skip


def greatest(row: F32) -> int:
    """Where the greatest logit is, of equals the first. Raises where no token can be chosen honestly."""
    best = int(row.argmax())  # of a row with NaN the first of those
    top = row[best]
    if top == -np.inf:
        raise NoTokenError("the sampling options leave no token")
    if not np.isfinite(top):
        raise NumericalError(f"the target's logits hold {top}")
    return best
