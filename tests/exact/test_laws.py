"""Exactness by enumeration: the joint law of three rounds equals plain sampling's to 1e-12."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from sooner import types
from sooner.certify.laws import Enumerator, Experiment, TableModel, law
from sooner.draft.growth import Child, sampled
from sooner.draft.model import ModelDrafter
from sooner.draft.protocol import Ask
from sooner.sampling.draws import RoundDraws
from sooner.sampling.noise import Purpose
from sooner.sampling.road import Road
from sooner.types import Distribution, Draft, Ledger, SamplingParams, Verdict
from sooner.verify.block import block
from sooner.verify.match import match
from sooner.verify.rejection import rejection
from tests.support.engines import VOCABULARY, request, tiny_decoder

ROADS = {
    "none": SamplingParams(),
    "temperature": SamplingParams(temperature=0.6),
    "greedy": SamplingParams(temperature=0.0),
    "top-k": SamplingParams(top_k=2),
    "top-p": SamplingParams(temperature=1.3, top_p=0.8),
    "min-p": SamplingParams(min_p=0.3),
    "penalties": SamplingParams(repetition_penalty=1.4, presence_penalty=0.3, frequency_penalty=0.5),
    "bias": SamplingParams(logit_bias={0: -2.0, 1: 1.5}),
}
RULES: tuple[types.Rule, ...] = ("rejection", "block")
Rule = Callable[[Draft, Callable[[int], Distribution], RoundDraws], Verdict]


def experiment(
    rule: types.Rule, vocabulary: int, k: int, params: SamplingParams = ROADS["none"], **options: Any
) -> Experiment:
    return Experiment(rule, TableModel(vocabulary, 1), TableModel(vocabulary, 2), Road(params, 1), k, **options)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("road", ROADS)
def test_three_rounds_all_paths_together(rule: types.Rule, road: str) -> None:
    case = experiment(rule, 2, 1, ROADS[road])
    assert case.total_variation(case.exact_law()) < 1e-12


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("road", ["temperature", "top-p"])
def test_two_drafted_tokens_all_paths_together(rule: types.Rule, road: str) -> None:
    case = experiment(rule, 2, 2, ROADS[road])
    assert case.total_variation(case.exact_law()) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("vocabulary", "k", "road"),
    [(2, 2, "none"), (2, 2, "penalties"), (2, 4, "top-p"), (3, 2, "top-k"), (3, 1, "none"), (4, 1, "bias")],
)
def test_larger_vocabularies_and_drafts_round_by_round(rule: types.Rule, vocabulary: int, k: int, road: str) -> None:
    case = experiment(rule, vocabulary, k, ROADS[road])
    assert case.total_variation(case.composed_law()) < 1e-12


@pytest.mark.parametrize("rule", RULES)
def test_a_deterministic_draft_is_a_point_mass(rule: types.Rule) -> None:
    """A node without probabilities is verified as if q had all its mass there."""
    case = experiment(rule, 3, 1, certain=True)
    assert case.total_variation(case.exact_law()) < 1e-12


@pytest.mark.parametrize("drafting", ["constant", "the target's own choice", "right, then wrong"])
def test_match_commits_what_the_target_draws_whatever_the_draft_knows(drafting: str) -> None:
    """The drafter may even see the target's own draws: the law of what is committed stays the target's."""
    case = experiment("rejection", 2, 2)

    def play(source: Enumerator) -> tuple[int, ...]:
        def own(prefix: tuple[int, ...]) -> int:
            name = int("1" + "".join(map(str, prefix)))
            p = case.road.probabilities(case.target.logits(prefix), prefix)
            return source.pick(Purpose.TOKEN, name, 0, p)

        ledger = case.start
        for _ in range(case.rounds):
            first = 0 if drafting == "constant" else own(ledger)
            second = 0 if drafting == "constant" else own((*ledger, first)) ^ (drafting == "right, then wrong")
            draft = Draft.chain([first, second])
            verdict = match(draft, lambda node, at=ledger, d=draft: own((*at, *d.tokens[: node + 1])))  # type: ignore[misc]
            ledger += tuple(verdict.tokens(draft))
        return ledger[len(case.start) :]

    assert case.total_variation(law(play)) < 1e-12


# Wrong rules that look right: the enumeration must see each of them. Certify's controls hold all nine.


def correction_from_p(draft: Draft, target: Callable[[int], Distribution], draws: RoundDraws) -> Verdict:
    for node, token in enumerate(draft.tokens):
        p, q = target(node - 1), draft.probs[node]
        assert q is not None
        if not draws.accept(node, min(1.0, p[token] / q[token])):
            return Verdict(tuple(range(node)), draws.choose(p), "correction")
    return Verdict(tuple(range(len(draft))), draws.choose(target(len(draft) - 1)), "bonus")


def test_a_correction_from_p_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sooner.engine.judge.STOCHASTIC", {"rejection": correction_from_p})
    case = experiment("rejection", 3, 1)
    assert case.total_variation(case.exact_law()) > 0.01


def test_noise_keyed_by_position_is_caught_only_over_several_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    def accept(self: RoundDraws, index: int, probability: float) -> bool:
        return self.source.below(Purpose.ACCEPT, 0, self.start + index, probability)

    monkeypatch.setattr(RoundDraws, "accept", accept)
    case = experiment("block", 2, 2, SamplingParams(temperature=2.0))
    assert case.total_variation(case.composed_law()) < 1e-12  # one round at a time it looks exact
    assert case.total_variation(case.exact_law()) > 1e-3


def test_a_correction_from_the_drafts_random_stream_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def choose(self: RoundDraws, weights: Distribution) -> int:
        return self.source.pick(Purpose.DRAFT, self.start, 0, weights)

    monkeypatch.setattr(RoundDraws, "choose", choose)
    case = experiment("rejection", 3, 1)
    assert case.total_variation(case.exact_law()) > 0.01


def test_block_keeps_more_than_rejection() -> None:
    """Sun et al.'s example: p=[1/3,2/3], q=[2/3,1/3], two tokens, no context: 10/9 accepted against 11/9."""
    p, q = np.array([1 / 3, 2 / 3]), np.array([2 / 3, 1 / 3])

    for rule, wanted in ((rejection, 10 / 9), (block, 11 / 9)):

        def accepted(source: Enumerator, rule: Rule = rule) -> int:
            draws = RoundDraws(source, 1)
            draft = Draft.chain([draws.draft(0, q), draws.draft(1, q)], [q, q])
            return len(rule(draft, lambda node: p, draws).path)

        mean = sum(n * mass for n, mass in law(accepted).items())
        assert mean == pytest.approx(wanted, abs=1e-12)


def test_draft_probabilities_of_another_precision_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """CASES.md 12: drawn from float64 and kept in bfloat16, whose 8 bits are a bias of their own."""

    def rounded(*arguments: Any) -> list[Child]:
        return [replace(c, q=torch.tensor(c.q).bfloat16().double().numpy()) for c in sampled(*arguments)]

    monkeypatch.setattr("sooner.certify.laws.sampled", rounded)
    for rule in RULES:
        case = experiment(rule, 2, 1)
        assert 1e-5 < case.total_variation(case.exact_law()) < 1e-2


def test_a_model_draft_carries_what_it_was_drawn_from_in_float64() -> None:
    """CASES.md 12."""
    drafter = ModelDrafter("m", tiny_decoder(9, 1), VOCABULARY, 8)
    one = request([1, 2, 3], SamplingParams(temperature=0.7, top_k=5, max_tokens=8), "m")
    [draft] = drafter.propose([Ask(0, one, Ledger([1, 2, 3], 3), 4, "rejection")])
    assert len(draft) == 4
    for token, q in zip(draft.tokens, draft.probs):
        assert q is not None and q.dtype == np.float64
        assert q.sum() == pytest.approx(1.0, abs=1e-15)
        assert np.count_nonzero(q) == 5 and q[token] > 0
