"""Block verification of a drafted chain: Sun et al. 2024, "Block Verification Accelerates Speculative Decoding".

Decides how much of the whole chain to keep instead of stopping at the first failure; keeps at least as many tokens as
rejection sampling in expectation, and no rule for one chain keeps more.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sooner.types import Distribution, Draft, Verdict
from sooner.verify.rejection import Draws, proposal


def block(draft: Draft, target: Callable[[int], Distribution], draws: Draws) -> Verdict:
    """target(node) is p after `node` (-1: after the committed prefix), float64 [V] after the whole sampling road."""
    if not draft.is_chain:
        raise ValueError(f"block verifies chains, got a tree with parents {draft.parents}")
    k = len(draft)
    p = [target(node) for node in range(-1, k)]  # p[i] is p_{i+1} of the paper
    q = [proposal(draft, node, len(p[0])) for node in range(k)]
    w = [1.0]  # w_i: how much of the chain's first i tokens the target would have produced itself
    for i, token in enumerate(draft.tokens):
        w.append(min(w[i] * p[i][token] / q[i][token], 1.0))
    if draws.accept(k, w[k]):
        return Verdict(tuple(range(k)), draws.choose(p[k]), "bonus")
    for i in range(k - 1, 0, -1):  # the largest accepted length wins; shorter ones need not be asked
        residual = np.maximum(w[i] * p[i] - q[i], 0.0)
        mass = float(residual.sum())
        if mass > 0.0 and draws.accept(i, mass / (mass + 1.0 - w[i])):
            return Verdict(tuple(range(i)), draws.choose(residual), "correction")
    residual = np.maximum(p[0] - q[0], 0.0)  # h_0 = 1: nothing is left to ask
    # An empty residual means p_1 = q_1 up to rounding, where rejecting was a rounding case: p_1 itself is then exact.
    return Verdict((), draws.choose(residual if residual.any() else p[0]), "correction")
