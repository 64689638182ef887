"""One position: what acceptance and correction do to a token drawn from q, in closed form and by seeded draws.

Sources: Leviathan et al. 2023 and Chen et al. 2023 (the rule); Moulton and Jiang 2018, Daliri et al. 2024 (how often
two choices agree that share their noise). `page/math/position.js` computes the same, and is tested against this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from sooner.errors import InputError
from sooner.plan.formulas import acceptance_rate, total_variation
from sooner.sampling.noise import Purpose, log, philox, unit
from sooner.sampling.road import F32, F64, Road
from sooner.types import Distribution, SamplingParams

MOST_TOKENS = 64


def distribution(weights: Sequence[float], params: SamplingParams) -> Distribution:
    """Weights [V], at least 0 and not all 0, as logits log(weight) after the whole sampling road: sums to 1."""
    given = np.asarray(weights, np.float64)
    if not 2 <= len(given) <= MOST_TOKENS:
        raise InputError(f"{len(given)} weights were given, must be between 2 and {MOST_TOKENS}")
    if not (np.isfinite(given).all() and (given >= 0.0).all() and given.any()):
        raise InputError(f"weights are {given.tolist()}, must be at least 0, finite, and not all 0")
    with np.errstate(divide="ignore"):
        logits = cast(F32, np.log(given / given.sum()))  # float64, which the road keeps where nothing is penalised
    return Road(params, 0).probabilities(logits, ())


@dataclass(frozen=True, slots=True)
class Position:
    """p and q [V] at one position, both after the whole sampling road."""

    p: Distribution
    q: Distribution

    def __post_init__(self) -> None:
        if self.p.shape != self.q.shape:
            raise InputError(f"p has {len(self.p)} tokens and q has {len(self.q)}; give as many of both")

    @classmethod
    def of(cls, p: Sequence[float], q: Sequence[float], params: SamplingParams | None = None) -> Position:
        """From weights, which the road of `params` turns into distributions."""
        params = params or SamplingParams()
        return cls(distribution(p, params), distribution(q, params))

    @property
    def acceptance(self) -> F64:
        """Chance that each token is kept once it was drafted: min(1, p/q). NaN where q is 0: it is never drafted."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.q > 0.0, np.minimum(1.0, self.p / self.q), np.nan)

    @property
    def accepted(self) -> F64:
        """Mass that comes out of each token by acceptance: q min(1, p/q) = min(p, q)."""
        return np.minimum(self.p, self.q)

    @property
    def residual(self) -> F64:
        """What the correction is drawn from: the positive part of p - q, normalised. All 0 where p equals q."""
        return normalised(np.maximum(self.p - self.q, 0.0))

    @property
    def output(self) -> F64:
        """The law of the token that is committed. It is p: min(p, q) + (p - q)+ = p, token by token."""
        return self.accepted + (1.0 - self.rate) * self.residual

    @property
    def rate(self) -> float:
        """Acceptance rate: sum of min(p, q) = 1 - TV(p, q)."""
        return acceptance_rate(self.p, self.q)


def normalised(weights: F64) -> F64:
    total = weights.sum()
    return weights / total if total > 0.0 else weights


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often a draft's token is kept, by the way of proposing and verifying it."""

    rejection: float  # drawn from q, kept with min(1, p/q): 1 - TV, the best that any rule can do
    shared_noise: float  # both choose argmax(log p + G) and argmax(log q + G) with the same Gumbel noise G
    shared_noise_bound: float  # (1 - TV) / (1 + TV), which shared noise never goes below
    greedy_draft: float  # q's likeliest token, kept where it equals a draw from p
    independent: float  # a draw from q, kept where it equals an independent draw from p


def agreement(position: Position) -> Agreement:
    """Closed forms. Shared noise: token v is both choices with chance 1 / sum over u of max(p_u/p_v, q_u/q_v).

    With E_v = exp(-G_v) standard exponential, both choose v where E_u >= E_v max(p_u/p_v, q_u/q_v) for every u.
    """
    p, q = position.p, position.q
    both = np.flatnonzero((p > 0.0) & (q > 0.0))
    shared = sum(1.0 / float(np.maximum(p / p[v], q / q[v]).sum()) for v in both)
    tv = total_variation(p, q)
    return Agreement(position.rate, shared, (1.0 - tv) / (1.0 + tv), float(p[int(q.argmax())]), float((p * q).sum()))


@dataclass(frozen=True, slots=True)
class Drawn:
    """What `draws` rounds of one token gave: how often each token came out [V], and how many were accepted."""

    draws: int
    counts: NDArray[np.int64]
    accepted: int

    @property
    def frequencies(self) -> F64:
        return np.asarray(self.counts / self.draws)

    @property
    def rate(self) -> float:
        return self.accepted / self.draws

    def error(self, chance: float) -> float:
        """Standard error of a frequency whose chance is given."""
        return float(np.sqrt(chance * (1.0 - chance) / self.draws))


def draw(position: Position, draws: int, seed: int) -> Drawn:
    """Plays the rule `draws` times. Each draw has its own Philox counter, so the page gets the same tokens."""
    check_draws(draws)
    p, q = position.p, position.q
    drafted = _pick(q, uniforms(seed, draws, Purpose.DRAFT))
    kept = uniforms(seed, draws, Purpose.ACCEPT) <= np.minimum(1.0, p[drafted] / q[drafted])
    residual = np.maximum(p - q, 0.0)
    if not residual.any():  # p equals q up to rounding: a rejection is a rounding case, as in verify/rejection.py
        kept[:] = True
    corrections = _pick(residual if residual.any() else p, uniforms(seed, draws, Purpose.CORRECT))
    tokens = np.where(kept, drafted, corrections)
    return Drawn(draws, np.bincount(tokens, minlength=len(p)), int(kept.sum()))


def draw_coupled(position: Position, draws: int, seed: int) -> Drawn:
    """The target's and the draft's choices under one Gumbel noise; "accepted" counts where they are equal."""
    check_draws(draws)
    with np.errstate(divide="ignore"):
        scores_p, scores_q = np.log(position.p), np.log(position.q)
    noise = np.stack([gumbel(seed, draws, token) for token in range(len(position.p))], axis=1)
    own, drafted = (scores_p + noise).argmax(axis=1), (scores_q + noise).argmax(axis=1)
    return Drawn(draws, np.bincount(own, minlength=len(position.p)), int((own == drafted).sum()))


def uniforms(seed: int, draws: int, purpose: Purpose, lane: int = 0) -> F64:
    """[draws] numbers in (0, 1): Philox under `seed` at the counters (draw, lane, 0, purpose)."""
    a, b, _, _ = philox(seed, np.arange(draws, dtype=np.uint64), lane, 0, purpose)
    return unit(a, b)


def gumbel(seed: int, draws: int, token: int) -> F64:
    """[draws] standard Gumbel numbers for one token."""
    return -log(-log(uniforms(seed, draws, Purpose.TOKEN, token)))


def _pick(weights: F64, u: F64) -> NDArray[np.int64]:
    """Inverse transform, as `Noise.pick`: a token without weight is never drawn."""
    cumulated = weights.cumsum()
    tokens = np.searchsorted(cumulated, u * cumulated[-1], side="right")
    return np.asarray(np.minimum(tokens, np.flatnonzero(weights)[-1]))


def check_draws(draws: int) -> None:
    if not 1 <= draws <= 10_000_000:
        raise InputError(f"draws is {draws}, must be between 1 and 10,000,000")


def without_temperature(params: SamplingParams) -> SamplingParams:
    """The same road at temperature 1."""
    return replace(params, temperature=1.0)


def without_truncation(params: SamplingParams) -> SamplingParams:
    """The same temperature with top-k and top-p switched off."""
    return replace(params, top_k=0, top_p=1.0)
