"""Verification of one draft: the target's logits and the sampling road meet the rules of `verify/`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sooner.sampling.draws import RoundDraws, Source
from sooner.sampling.noise import Noise
from sooner.sampling.road import F32, Road
from sooner.types import Draft, Request, Rule, Verdict
from sooner.verify.block import block
from sooner.verify.match import match
from sooner.verify.rejection import rejection

if TYPE_CHECKING:  # a backend may be anything; this module needs no torch
    from sooner.kernels.interface import Chooser

STOCHASTIC = {"rejection": rejection, "block": block}


def rule_for(request: Request, samples: bool) -> Rule:
    """Resolves `auto`. samples: whether the round's drafter samples its proposals.

    `match` for greedy and seeded requests and for every deterministic draft, where it is exact and no rule accepts
    more; for an unseeded request `block` where its draft is a sampled chain, `rejection` where it is a sampled tree.
    """
    if request.speculation.rule != "auto":
        return request.speculation.rule
    if not samples or request.seeded or request.params.greedy:
        return "match"
    return "rejection" if request.speculation.draft_branches > 1 else "block"


def judge_by_match(
    draft: Draft, tokens: Sequence[int], logits: F32, road: Road, noise: Noise, fast: Chooser | None = None
) -> Verdict:
    """tokens: the ledger. logits [1 + len(draft), V]: row 0 chooses after the ledger, row 1 + i after draft node i."""
    return match(draft, lambda node: road.choose(logits[node + 1], prefix(tokens, draft, node), noise, fast))


def judge_by_ratio(rule: Rule, draft: Draft, tokens: Sequence[int], logits: F32, road: Road, source: Source) -> Verdict:
    """The same for `rejection` and `block`, which compare distributions."""
    draws = RoundDraws(source, len(tokens))
    return STOCHASTIC[rule](
        draft, lambda node: road.probabilities(logits[node + 1], prefix(tokens, draft, node)), draws
    )


def prefix(tokens: Sequence[int], draft: Draft, node: int) -> list[int]:
    """Everything before the choice after `node`: the ledger, then the node's ancestors and itself."""
    return [*tokens, *(draft.tokens[n] for n in draft.ancestors(node))]
