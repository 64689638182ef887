"""Exactness of trees by enumeration: what three rounds commit has plain sampling's joint law, to 1e-12."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sooner import types
from sooner.certify.laws import law
from sooner.draft.growth import Child, Growth, sampled
from sooner.sampling.draws import RoundDraws
from sooner.sampling.road import F32, Road
from sooner.types import Distribution, Draft, SamplingParams
from sooner.verify.block import block
from sooner.verify.rejection import rejection
from tests.exact.test_laws import ROADS, experiment


@pytest.mark.parametrize(
    ("rule", "vocabulary", "k", "road", "certain"),
    [
        ("rejection", 3, 3, "top-k", False),
        ("rejection", 3, 2, "top-p", False),
        ("rejection", 3, 2, "top-k", False),
        ("rejection", 3, 2, "penalties", True),
        ("rejection", 2, 3, "greedy", False),
        ("match", 2, 3, "min-p", False),
        ("match", 3, 2, "top-p", False),
        ("match", 3, 3, "top-k", True),
    ],
)
def test_three_rounds_of_trees_all_paths_together(
    rule: types.Rule, vocabulary: int, k: int, road: str, certain: bool
) -> None:
    case = experiment(rule, vocabulary, k, ROADS[road], branches=2, certain=certain)
    assert case.total_variation(case.exact_law()) < 1e-12


@pytest.mark.parametrize(("vocabulary", "k", "branches", "road"), [(3, 4, 2, "top-k"), (3, 3, 3, "bias")])
def test_larger_trees_round_by_round(vocabulary: int, k: int, branches: int, road: str) -> None:
    case = experiment("rejection", vocabulary, k, ROADS[road], branches=branches, rounds=2)
    assert case.total_variation(case.composed_law()) < 1e-12


def test_a_tree_keeps_more_than_its_first_branch() -> None:
    """p=[.1,.2,.3,.4], q its mirror image: chains of one accept .6, two children drawn without replacement more."""
    q = np.array([0.4, 0.3, 0.2, 0.1])
    p = q[::-1].copy()

    def accepted(source: Any) -> int:
        draws = RoundDraws(source, 1)
        children = sampled(Road(SamplingParams(), 1), np.log(q).astype(np.float32), (0,), 2, draws)
        draft = Draft(tuple(c.token for c in children), (-1, -1), tuple(c.q for c in children))
        return len(rejection(draft, lambda node: p, draws).path)

    mean = sum(n * mass for n, mass in law(accepted).items())
    assert 0.6 < mean < 1.0
    # By hand: x is refused with chance q(x) - p(x) where q is above p; then what is left of p meets q without x.
    second = {
        x: sum(min(left, q[y] / (1 - q[x])) for y, left in enumerate(np.maximum(p - q, 0.0) / 0.4) if y != x)
        for x in (0, 1)
    }
    assert mean == pytest.approx(0.6 + sum((q[x] - p[x]) * second[x] for x in (0, 1)), abs=1e-6)


# Wrong rules that look right: the enumeration must see each of them.


def with_replacement(
    road: Road, logits: F32, prefix: Any, count: int, draws: RoundDraws, index: int = 0
) -> list[Child]:
    """Children drawn independently, and verified as if they had been drawn without replacement."""
    right = sampled(road, logits, prefix, count, draws, index)
    q = road.probabilities(logits, prefix)
    tokens = [right[0].token, *(draws.draft(index + i, q) for i in range(1, len(right)))]
    return [Child(token, q if i == 0 else _without(q, tokens[:i], token), 1.0) for i, token in enumerate(tokens)]


def _without(q: Distribution, earlier: list[int], token: int) -> Distribution:
    left = q.copy()
    left[[t for t in earlier if t != token]] = 0.0
    return np.asarray(left / left.sum())


def of_q(road: Road, logits: F32, prefix: Any, count: int, draws: RoundDraws, index: int = 0) -> list[Child]:
    """Drawn without replacement, and each child carries q itself."""
    q = road.probabilities(logits, prefix)
    return [replace(child, q=q) for child in sampled(road, logits, prefix, count, draws, index)]


def ratio_of_top(road: Road, logits: F32, prefix: Any, count: int, draws: RoundDraws, index: int = 0) -> list[Child]:
    """The likeliest tokens, verified as if they had been drawn."""
    q = road.probabilities(logits, prefix)
    return [Child(int(token), q, float(q[token])) for token in np.argsort(-q)[:count]]


def reranked(self: Growth) -> Draft:
    """Of the children that were drawn only the likeliest are kept."""
    nodes = sorted(range(len(self.tokens)), key=lambda n: -float(_of(self.probs[n])[self.tokens[n]]))[: self.limit - 1]
    return Draft(tuple(self.tokens[n] for n in nodes), (-1,) * len(nodes), tuple(self.probs[n] for n in nodes))


def _of(q: Distribution | None) -> Distribution:
    assert q is not None
    return q


@pytest.mark.parametrize("wrong", [with_replacement, of_q, ratio_of_top])
def test_children_that_carry_what_they_were_not_drawn_from_are_caught(
    wrong: Callable[..., list[Child]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sooner.certify.laws.sampled", wrong)
    case = experiment("rejection", 4, 2, branches=2, rounds=1)
    assert case.total_variation(case.exact_law()) > 1e-3


def test_a_tree_that_is_ranked_again_after_it_was_drawn_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Growth, "draft", property(reranked))
    case = experiment("rejection", 4, 2, branches=2, rounds=1)
    assert case.total_variation(case.exact_law()) > 1e-3


def test_a_second_child_that_is_verified_against_p_itself_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(draft: Draft, target: Callable[[int], Distribution], draws: RoundDraws) -> types.Verdict:
        for node in draft.children(-1):
            p, q = target(-1), _of(draft.probs[node])
            if draws.accept(node, min(1.0, p[draft.tokens[node]] / q[draft.tokens[node]])):
                return types.Verdict((node,), draws.choose(target(node)), "bonus")
        return types.Verdict((), draws.choose(np.maximum(p - q, 0.0)), "correction")

    monkeypatch.setattr("sooner.engine.judge.STOCHASTIC", {"rejection": forgetful})
    case = experiment("rejection", 4, 2, branches=2, rounds=1)
    assert case.total_variation(case.exact_law()) > 1e-3


def test_block_refuses_trees() -> None:
    draft = Draft((1, 2), (-1, -1), (None, None))
    with pytest.raises(ValueError, match="block verifies chains"):
        block(draft, lambda node: np.ones(3) / 3, None)  # type: ignore[arg-type]
