"""Rejection sampling of a drafted chain: Leviathan et al. 2023 (algorithm 1), Chen et al. 2023 (algorithm 2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from sooner.types import Distribution, Draft, Verdict


class Draws(Protocol):
    """The randomness of one round. Answers must be independent for different questions and of the draft's own draws."""

    def accept(self, index: int, probability: float) -> bool: ...
    def choose(self, weights: Distribution) -> int: ...


def rejection(draft: Draft, target: Callable[[int], Distribution], draws: Draws) -> Verdict:
    """target(node) is p after `node` (-1: after the committed prefix), float64 [V] after the whole sampling road.

    Accepts token d_i with probability min(1, p_i(d_i) / q_i(d_i)). At the first rejection the correction comes from
    the normalised positive part of p_i - q_i; after the last token the bonus comes from p_{k+1}.
    """
    check_chain(draft)
    for node, token in enumerate(draft.tokens):
        p = target(node - 1)
        q = proposal(draft, node, len(p))
        if draws.accept(node, min(1.0, p[token] / q[token])):
            continue
        residual = np.maximum(p - q, 0.0)
        if residual.any():
            return Verdict(tuple(range(node)), draws.choose(residual), "correction")
        # p and q are equal up to rounding, so the rejection itself was a rounding case: the token stands.
    return Verdict(tuple(range(len(draft))), draws.choose(target(len(draft) - 1)), "bonus")


def check_chain(draft: Draft) -> None:
    if not draft.is_chain:
        raise ValueError(f"this rule verifies chains, got a tree with parents {draft.parents}")


def proposal(draft: Draft, node: int, vocabulary: int) -> Distribution:
    """q of one node: what it was sampled from, or all mass on a deterministic token."""
    q = draft.probs[node]
    if q is None:
        q = np.zeros(vocabulary)
        q[draft.tokens[node]] = 1.0
    if len(q) != vocabulary or not q[draft.tokens[node]] > 0.0:
        raise ValueError(
            f"draft token {draft.tokens[node]} has q = {q[draft.tokens[node]]} over {len(q)} tokens; it cannot have "
            f"been drawn from that, or the target's vocabulary of {vocabulary} is another one"
        )
    return q
