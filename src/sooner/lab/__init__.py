"""The lab: speculative decoding to see and to try. `sooner lab` serves the page; here are its twins in Python.

from sooner.lab import Position, draw
position = Position.of([0.6, 0.3, 0.1], [0.2, 0.5, 0.3])
position.acceptance, position.residual, draw(position, 10_000, seed=0).frequencies
"""

from sooner.lab.chain import Pair, blurred, moody_pair, published_pair, random_target, shortfall, simulate
from sooner.lab.position import Position, agreement, draw, draw_coupled
from sooner.lab.rounds import balance, best_lengths, simulate_rounds
from sooner.lab.wrong import WRONG_RULES, Case, error

__all__ = [
    "WRONG_RULES",
    "Case",
    "Pair",
    "Position",
    "agreement",
    "balance",
    "best_lengths",
    "blurred",
    "draw",
    "draw_coupled",
    "error",
    "moody_pair",
    "published_pair",
    "random_target",
    "shortfall",
    "simulate",
    "simulate_rounds",
]
