"""Seed-exact verification: the target's own choice at each row, drafts kept while they equal it.

With the target's choice at temperature 0 this is greedy verification. With Gumbel noise that depends on (seed, sample,
position, token) alone, the output is a function of target, prompt, settings and seed, whatever the draft. For a
deterministic proposal with a random seed it has the law of Leviathan et al.'s rule with a point-mass q.
"""

from __future__ import annotations

from collections.abc import Callable

from sooner.types import Draft, Verdict


def match(draft: Draft, own: Callable[[int], int]) -> Verdict:
    """own(node) is the token that the target itself chooses after `node` (-1: after the committed prefix).

    Follows the child that equals the target's choice while there is one; asks for no row beyond that.
    """
    path: list[int] = []
    node = -1
    while True:
        token = own(node)
        children = draft.children(node)
        node = next((child for child in children if draft.tokens[child] == token), -1)
        if node < 0:
            return Verdict(tuple(path), token, "correction" if children else "bonus")
        path.append(node)
