"""Rejection sampling of a drafted chain or tree.

Sources: Leviathan et al. 2023 (algorithm 1) and Chen et al. 2023 (algorithm 2) for chains; Miao et al. 2024
("SpecInfer", multi-step speculative sampling) and Jeon et al. 2024 (recursive rejection sampling) for siblings.
"""

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

    Of siblings, in the order in which they were drawn, accepts x with probability min(1, p(x) / q(x)); once x is
    rejected, p becomes the normalised positive part of p - q, with q what x itself was drawn from. Then its children's
    turn comes. The correction is drawn from what all siblings have left of p, the bonus from p where none were drafted.
    """
    path: list[int] = []
    while True:
        p = target(path[-1] if path else -1)
        children = draft.children(path[-1] if path else -1)
        accepted, p = _one_of(draft, children, p, draws)
        if accepted is None:
            return Verdict(tuple(path), draws.choose(p), "correction" if children else "bonus")
        path.append(accepted)


def _one_of(draft: Draft, siblings: list[int], p: Distribution, draws: Draws) -> tuple[int | None, Distribution]:
    """The sibling that is accepted, or None and what is left of p."""
    for node in siblings:
        token, q = draft.tokens[node], proposal(draft, node, len(p))
        if draws.accept(node, min(1.0, p[token] / q[token])):
            return node, p
        residual = np.maximum(p - q, 0.0)
        if not residual.any():
            return node, p  # p and q are equal up to rounding, so the rejection itself was a rounding case
        p = residual / residual.sum()
    return None, p


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
