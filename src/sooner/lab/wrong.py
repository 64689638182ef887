"""Rules that look right and are not: what each puts out at one position, in closed form.

`sooner certify --controls` puts the same faults into the engine's own source; here each is one line of algebra.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sooner.lab.position import (
    Position,
    distribution,
    normalised,
    without_temperature,
    without_truncation,
)
from sooner.plan.formulas import total_variation
from sooner.sampling.road import F64
from sooner.types import SamplingParams

LOW_Q = 0.25  # "its q is low": below a quarter
LIKELY = 0.5  # "the target finds it likely": at least half as likely as the likeliest token
EPSILON = 0.01


@dataclass(frozen=True, slots=True)
class Case:
    """A position, and what wrong rules mix it up with: p and q at temperature 1, and q before top-k and top-p."""

    here: Position
    cold: Position
    wide_q: F64

    @classmethod
    def of(cls, p: Sequence[float], q: Sequence[float], params: SamplingParams) -> Case:
        cold = params if params.greedy else without_temperature(params)
        return cls(Position.of(p, q, params), Position.of(p, q, cold), distribution(q, without_truncation(params)))


def corrected(case: Case, weights: F64) -> F64:
    """The right acceptance, and a correction from other weights."""
    return np.asarray(case.here.accepted + (1.0 - case.here.rate) * normalised(weights))


def from_p(case: Case) -> F64:
    return corrected(case, case.here.p)


def draw_again(case: Case) -> F64:
    """NaN where p and q share no token: then it never ends."""
    return case.here.accepted / case.here.rate if case.here.rate else np.full_like(case.here.p, np.nan)


def likeliest(case: Case) -> F64:
    """q's likeliest token, judged by p/q as if it had been drawn from q."""
    here, token = case.here, int(case.here.q.argmax())
    chance = here.acceptance[token]
    output = (1.0 - chance) * here.residual
    output[token] += chance
    return np.asarray(output)


def likely(case: Case) -> F64:
    """Keeps what the target finds likely, else draws from p."""
    here = case.here
    kept = here.q * (here.p >= LIKELY * here.p.max())
    return np.asarray(kept + (1.0 - kept.sum()) * here.p)


def cold_residual(case: Case) -> F64:
    return corrected(case, case.cold.residual)


def drop_low(case: Case) -> F64:
    """A drawn token whose q is low is dropped, and the target draws its own token instead."""
    here, kept = case.here, case.here.q >= LOW_Q
    accepted = here.accepted * kept
    dropped = float(here.q[~kept].sum())
    return np.asarray(accepted + (1.0 - accepted.sum() - dropped) * here.residual + dropped * here.p)


def wide_ratio(case: Case) -> F64:
    """The draft is drawn from q, and judged by the q before top-k and top-p."""
    p, wide = case.here.p, case.wide_q
    with np.errstate(divide="ignore", invalid="ignore"):
        accepted = np.where(wide > 0.0, case.here.q * np.minimum(1.0, p / wide), 0.0)
    return np.asarray(accepted + (1.0 - accepted.sum()) * normalised(np.maximum(p - wide, 0.0)))


def same_stream(case: Case) -> F64:
    """The number that picked the draft picks the correction too: it lies where the rejected token lies."""
    here = case.here
    rejected = np.where(here.q > 0.0, 1.0 - np.nan_to_num(here.acceptance), 0.0)
    drafts, corrections = _edges(here.q), _edges(here.residual)
    low = np.maximum(drafts[:-1, None], corrections[None, :-1])
    high = np.minimum(drafts[1:, None], corrections[None, 1:])
    return np.asarray(here.accepted + (rejected[:, None] * np.maximum(high - low, 0.0)).sum(axis=0))


def epsilon(case: Case) -> F64:
    return corrected(case, np.maximum(case.here.p - case.here.q, 0.0) + EPSILON)


def _edges(weights: F64) -> F64:
    return np.concatenate([[0.0], weights.cumsum()])


@dataclass(frozen=True, slots=True)
class WrongRule:
    key: str
    name: str
    output: Callable[[Case], F64]


WRONG_RULES = (
    WrongRule("from_p", "correction drawn from p instead of the residual", from_p),
    WrongRule("draw_again", "no residual: the draft draws again until a token is accepted", draw_again),
    WrongRule("likeliest", "p/q acceptance for the draft's likeliest token", likeliest),
    WrongRule("likely", f"keep what has at least {LIKELY:g} of p's largest probability", likely),
    WrongRule("cold_residual", "temperature in the ratio but not in the residual", cold_residual),
    WrongRule("drop_low", f"drop a drawn token whose q is below {LOW_Q:g}", drop_low),
    WrongRule("wide_ratio", "q recorded before top-k and top-p, the draft drawn after", wide_ratio),
    WrongRule("same_stream", "the correction reuses the draft's random number", same_stream),
    WrongRule("epsilon", f"{EPSILON:g} added to the residual", epsilon),
)


def error(case: Case, rule: WrongRule) -> float:
    """Total variation between what the rule puts out and p."""
    return total_variation(rule.output(case), case.here.p)


TYPICAL_ROAD = SamplingParams(temperature=0.7, top_k=5, top_p=0.9)
TYPICAL_TOKENS = 8


def typical_errors(pairs: int = 1000, seed: int = 0) -> dict[str, float]:
    """Median error of each rule over random pairs on TYPICAL_ROAD. Spread of the logits of p: 1.5; of q around p: 1."""
    rng = np.random.default_rng(seed)
    p = rng.normal(0.0, 1.5, (pairs, TYPICAL_TOKENS))
    q = p + rng.normal(0.0, 1.0, p.shape)
    cases = [Case.of(list(np.exp(a)), list(np.exp(b)), TYPICAL_ROAD) for a, b in zip(p, q)]
    return {rule.key: float(np.nanmedian([error(case, rule) for case in cases])) for rule in WRONG_RULES}
