"""The closed forms beside what recorded answers say: how good one acceptance rate is as a summary."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import Any

from sooner.plan.cost import LiveCosts
from sooner.plan.formulas import best_length, ceiling, expected_tokens, speedup
from sooner.plan.replay import Recorded


def acceptance_by_position(recorded: Sequence[Recorded], name: str, longest: int) -> list[float]:
    """Of each position in a draft: the share that was accepted where all before it were, over every place of the
    answers at which the drafter proposes so much. Ends where nothing was ever judged."""
    offers = [at[name] for one in recorded for at in one.offers[1:] if name in at]
    shares = []
    for i in range(longest):
        judged = [offer.accepted > i for offer in offers if offer.proposed > i and offer.accepted >= i]
        if not judged:
            break
        shares.append(sum(judged) / len(judged))
    return shares


def silence(recorded: Sequence[Recorded], name: str) -> float:
    """The share of places at which the drafter proposes nothing."""
    offers = [at[name] for one in recorded for at in one.offers[1:] if name in at]
    return sum(offer.proposed == 0 for offer in offers) / len(offers) if offers else 1.0


def beside(
    costs: LiveCosts, recorded: Sequence[Recorded], name: str, k: int, measured_tokens: float, measured: float
) -> dict[str, Any]:
    """One drafter with k drafted tokens, one sequence: the formulas from the mean acceptance rate, next to the replay.

    measured_tokens: a round, from the replay; measured: its speedup. varying: the same formula from acceptance by
    position, which a single rate replaces by its mean.
    """
    chances = acceptance_by_position(recorded, name, max(k, 1))
    if not chances:
        return {"drafter": name, "tokens": k, "silent": 1.0}
    drafter, plain = costs.drafter(name), costs.products(1)
    judged = [offer for one in recorded for at in one.offers[1:] if (offer := at.get(name)) and offer.proposed]
    tried = sum(min(offer.accepted + 1, offer.proposed, k) for offer in judged)
    alpha = sum(min(offer.accepted, k) for offer in judged) / tried if tried else 0.0
    c = (drafter.call + drafter.step * (k - 1)) / k / plain if k else drafter.call / plain
    verification = [costs.products(rows) / plain for rows in range(1, 18)]
    return {
        "drafter": name,
        "tokens": k,
        "silent": silence(recorded, name),
        "acceptance": chances,
        "alpha": alpha,
        "c": c,
        "expected_tokens": expected_tokens(alpha, k),
        "ceiling": ceiling(alpha),
        "varying_tokens": 1.0 + sum(accumulate(chances[:k], mul)),
        "measured_tokens": measured_tokens,
        "speedup": speedup(alpha, k, c, verification[k]),
        "measured_speedup": measured,
        "best_length": best_length(alpha, c, 16, verification),
        "operations": (k + 1) / expected_tokens(alpha, k),
    }
