"""What the package computes, as JSON on standard output: the page's tests compare the page's own code with it."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from sooner.bench.report import for_the_lab
from sooner.lab import WRONG_RULES, Case, agreement, balance, best_lengths, chain, draw, draw_coupled
from sooner.lab.position import uniforms
from sooner.lab.record import record
from sooner.lab.results import summarise
from sooner.plan.cost import CostTable
from sooner.plan.formulas import ceiling, expected_tokens, speedup
from sooner.sampling.noise import Purpose
from sooner.types import SamplingParams

ROADS = [
    SamplingParams(),
    SamplingParams(temperature=0.0),
    SamplingParams(temperature=0.55),
    SamplingParams(temperature=1.8, top_k=3),
    SamplingParams(temperature=0.7, top_k=5, top_p=0.83),
    SamplingParams(top_p=0.5),
]
DRAWS, SEED = 10_000, 5


def positions() -> list[dict[str, Any]]:
    rng = np.random.default_rng(11)
    weights = [(rng.random(n).tolist(), rng.random(n).tolist()) for n in (2, 3, 5, 8)]
    weights += [([0.0, 0.3, 0.7], [0.5, 0.5, 0.0]), ([0.4, 0.6], [0.8, 0.2]), ([1.0, 0.0], [0.0, 1.0])]
    return [position(p, q, road) for p, q in weights for road in ROADS]


def position(p: Sequence[float], q: Sequence[float], road: SamplingParams) -> dict[str, Any]:
    case = Case.of(p, q, road)
    here = case.here
    drawn, coupled = draw(here, DRAWS, SEED), draw_coupled(here, DRAWS, SEED)
    return {
        "weights": [p, q],
        "road": {"temperature": road.temperature, "topK": road.top_k, "topP": road.top_p},
        "p": here.p.tolist(),
        "q": here.q.tolist(),
        "acceptance": numbers(here.acceptance),
        "accepted": here.accepted.tolist(),
        "residual": here.residual.tolist(),
        "output": here.output.tolist(),
        "rate": here.rate,
        "agreement": list(asdict(agreement(here)).values()),
        "wrong": {rule.key: numbers(rule.output(case)) for rule in WRONG_RULES},
        "drawn": {"counts": drawn.counts.tolist(), "accepted": drawn.accepted},
        "coupled": {"counts": coupled.counts.tolist(), "accepted": coupled.accepted},
    }


def numbers(values: Any) -> list[float | None]:
    return [None if math.isnan(value) else float(value) for value in values]


def formulas() -> dict[str, Any]:
    grid = [(a, k, c, v) for a in (0.0, 0.37, 0.9, 1.0) for k in (0, 1, 7, 20) for c in (0.0, 0.13) for v in (1.0, 1.7)]
    return {
        "grid": [[a, k, c, v, expected_tokens(a, k), speedup(a, k, c, v)] for a, k, c, v in grid],
        "ceilings": [[a, ceiling(a)] for a in (0.0, 0.5, 0.9)],
        "best": [[b.alpha, c, b.length] for c in (0.02, 0.1, 0.6) for b in best_lengths((0.2, 0.5, 0.7, 0.95), c)],
        "balance": [
            [*given, *list(asdict(balance(*given)).values())[1:]] for given in ((10, 16, 3.2), (8, 20, 4, 500, 50))
        ],
    }


def chains() -> list[dict[str, Any]]:
    made = [
        (chain.published_pair(), 4, 64),
        (chain.moody_pair(), 6, 40),
        (chain.blurred(chain.random_target(7, 9), 0.8), 0, 9),
        (chain.blurred(chain.random_target(3, 4), 0.15), 9, 200),
    ]
    return [
        {
            "P": pair.P.tolist(),
            "Q": pair.Q.tolist(),
            "k": k,
            "length": length,
            "acceptance": pair.acceptance.tolist(),
            "mean": pair.mean_acceptance,
            "round": chain.tokens_a_round(pair, k).tolist(),
            "frequencies": chain.frequencies(pair, length).tolist(),
            "shortfall": list(asdict(chain.shortfall(pair, k, length)).values()),
        }
        for pair, k, length in made
    ]


def costs() -> dict[str, Any]:
    table = CostTable((1, 2, 4, 8, 16), (0.010, 0.011, 0.0125, 0.02, 0.041), head=0.2)
    asked = [1, 1.5, 2, 3, 7, 8, 12, 16, 40]
    return {"table": table.as_dict(), "asked": asked, "ms": [1000 * table.products(rows) for rows in asked]}


def noise() -> list[list[float]]:
    return [
        [seed, purpose, lane, *uniforms(seed, 3, purpose, lane).tolist()]
        for seed in (0, 7, 2**32 - 1)
        for purpose in Purpose
        for lane in (0, 6)
    ]


def values() -> dict[str, Any]:
    root = Path("results")
    return {
        "positions": positions(),
        "draws": DRAWS,
        "seed": SEED,
        "formulas": formulas(),
        "chains": chains(),
        "costs": costs(),
        "noise": noise(),
        "traces": record(),
        "results": summarise(*for_the_lab(root), root),
    }


if __name__ == "__main__":
    json.dump(values(), sys.stdout)
