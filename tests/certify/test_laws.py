"""Part 1 sees `match` too, and what is wrong with it."""

from collections.abc import Sequence

import pytest

from sooner.certify import laws
from sooner.certify.law_cases import FULL, QUICK, ROADS
from sooner.certify.law_cases import laws as part
from sooner.certify.laws import Experiment, TableModel
from sooner.sampling.noise import Noise
from sooner.sampling.road import F32, Road
from sooner.types import Draft, Verdict


def experiment(road: str, vocabulary: int = 2, certain: bool = False) -> Experiment:
    target, draft = TableModel(vocabulary, 1), TableModel(vocabulary, 2)
    return Experiment("match", target, draft, Road(ROADS[road], 1), 1, certain=certain)


@pytest.mark.parametrize("road", ["none", "top-p", "penalties"])
@pytest.mark.parametrize("certain", [False, True])
def test_match_keeps_the_law_through_the_engines_own_code(road: str, certain: bool) -> None:
    case = experiment(road, certain=certain)
    assert case.total_variation(case.exact_law()) < 1e-12


def test_a_match_that_believes_the_draft_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def believe(draft: Draft, tokens: Sequence[int], logits: F32, road: Road, noise: Noise) -> Verdict:
        prefix = [*tokens, *draft.tokens]
        return Verdict(tuple(range(len(draft))), road.choose(logits[-1], prefix, noise), "bonus")

    monkeypatch.setattr(laws, "judge_by_match", believe)
    case = experiment("none")
    assert case.total_variation(case.exact_law()) > 0.01


def test_every_rule_meets_every_road() -> None:
    jobs = [job.name for job in part(quick=True).jobs]
    assert {f"{rule}, {road}" for rule in ("rejection", "block", "match") for road in ROADS} <= set(jobs)
    assert len(FULL) > len(QUICK)
    [check] = part(quick=True).jobs[0].run()
    assert check.ok and check.figures["total_variation"] < check.figures["limit"]
