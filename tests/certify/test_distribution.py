"""Part 3 on tiny models: recorded rows, their laws, and what some wrong rules make of them; controls hold them all."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from sooner.certify.distribution import QUICK, ROADS, Case, K, own_cases
from sooner.certify.rows import MOST, TooWideError, record, support
from sooner.certify.subject import Subject
from sooner.certify.tiny import tiny_subject
from sooner.draft.model import ModelDrafter
from sooner.draft.protocol import Ask
from sooner.engine.judge import STOCHASTIC
from sooner.sampling.draws import RoundDraws
from sooner.types import Distribution, Draft, Rule, SamplingParams, Verdict
from sooner.verify.block import block


def case(rule: Rule = "block", drafter: str = "model", samples: int = 300, seed: int = 1) -> Case:
    return Case("tiny model", tiny_subject(), rule, drafter, "penalties", ROADS["penalties"], seed, samples)


@pytest.mark.parametrize(
    ("rule", "drafter"), [("rejection", "model"), ("block", "model"), ("match", "model"), ("match", "")]
)
def test_the_engine_as_it_is_passes(rule: Rule, drafter: str) -> None:
    checks = case(rule, drafter).check()
    assert len(checks) == (4 if rule != "match" else 1)
    assert all(check.ok for check in checks), [check.text for check in checks]


@pytest.mark.slow
def test_acceptance_of_rejection_is_the_overlap_and_block_keeps_more() -> None:
    rejection, block = (case(rule).check()[0].figures for rule in ("rejection", "block"))
    assert rejection["acceptance"] == pytest.approx(rejection["one_minus_tv"], abs=1e-12)
    assert block["accepted_tokens"] > rejection["accepted_tokens"]


def test_a_drafter_whose_q_is_not_what_it_drew_from_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """It records one distribution when asked for a single token and another within a chain."""
    propose = ModelDrafter.propose

    def unsteady(self: ModelDrafter, asks: Sequence[Ask]) -> list[Draft]:
        drafts = propose(self, asks)
        return [draft if len(draft) < 2 else flattened(draft) for draft in drafts]

    def flattened(draft: Draft) -> Draft:
        return Draft.chain(draft.tokens, [None if q is None else 0.9 * q + 0.1 / len(q) for q in draft.probs])

    monkeypatch.setattr(ModelDrafter, "propose", unsteady)
    checks = {check.name.rsplit(": ", 1)[1]: check for check in case().check()}
    assert not checks["q as recorded"].ok
    assert checks["recorded rows, enumerated"].ok  # nothing is wrong with what was recorded


def test_a_block_rule_that_stops_at_the_first_failure_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(draft: Draft, target: Callable[[int], Distribution], draws: RoundDraws) -> Verdict:
        verdict = block(draft, target, draws)
        return verdict if len(verdict.path) != 1 else Verdict((), draws.choose(target(-1)), "correction")

    monkeypatch.setitem(STOCHASTIC, "block", hasty)
    check = case(samples=1).check()[0]
    assert not check.ok and check.figures["total_variation"] > 1e-3


def test_a_road_that_leaves_many_tokens_is_refused() -> None:
    subject = tiny_subject()
    request = subject.request((1, 2), SamplingParams(max_tokens=K + 2), "model", K, "block")
    assert subject.decoder.config.vocabulary < MOST
    rows = record(subject, request, subject.drafters["model"])
    assert sum(rows.words(3).values()) == pytest.approx(1.0)
    with pytest.raises(TooWideError, match="leaves 9 tokens"):
        support(np.full(9, 1 / 9))


def test_every_road_leaves_few_tokens() -> None:
    assert all(0 < params.top_k <= MOST for params in ROADS.values())


def test_on_a_users_model_every_drafter_proposes_what_the_target_may_choose(subject: Subject) -> None:
    cases = own_cases(QUICK, 1, subject)
    ways = [("rejection", "ngram"), ("block", "ngram"), ("rejection", "model:self/1"), ("block", "model:self/1")]
    assert [(case.rule, case.drafter) for case in cases] == [*ways, ("match", "")]
    for case in cases:
        checks = case.check()
        assert all(check.ok for check in checks), [check.text for check in checks]
        if case.drafter:
            assert checks[0].figures["acceptance"] > 0.001
            assert checks[1].figures["n"] == QUICK.samples and checks[3].figures["compared"] > 0
