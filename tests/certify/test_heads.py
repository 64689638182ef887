"""certify and the recorder of answers show a drafter that reads features what an engine would."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sooner.bench.trace import trace
from sooner.certify.distribution import QUICK, own_cases
from sooner.certify.speed import Amount, Speed
from sooner.certify.subject import Subject
from sooner.draft.eagle_files import read_eagle
from sooner.draft.heads import HeadDrafter
from sooner.types import SamplingParams
from tests.support import heads
from tests.support.engines import engine, request, run
from tests.support.heads import VOCABULARY, eagle3_settings, eagle3_tensors, write_head

PROMPT = tuple(range(24))


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    head = read_eagle(write_head(tmp_path, eagle3_settings("original"), eagle3_tensors()), heads.target(), "auto")
    return Subject(heads.target(), {"head": HeadDrafter("head", head, VOCABULARY, 512)}, [PROMPT], batch=4)


def test_speed(subject: Subject) -> None:
    [check] = Speed(subject, Amount(13, 40), 0).long_run("head", 4)
    assert check.ok, check.text
    assert check.figures["compared"] > 2


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_distribution(subject: Subject, rule: str) -> None:
    [case] = [case for case in own_cases(QUICK, 1, subject) if case.rule == rule]
    [check] = replace(case, samples=150).check()
    assert check.ok, check.text


def test_recorded_offers_are_the_drafts_of_an_engine(subject: Subject) -> None:
    machine, records = engine(subject.drafters, subject.decoder)
    one = request(PROMPT, SamplingParams(temperature=0.8, seed=5, max_tokens=20), "head", draft_tokens=4)
    [answer] = run(machine, [one])
    costs = SimpleNamespace(drafter=lambda name: SimpleNamespace(step=0.0))
    machine.parts.planner.costs = costs  # type: ignore[assignment]
    llm: Any = SimpleNamespace(engine=machine)
    offers = trace(llm, one, answer.tokens)
    drafted = {record.start - len(PROMPT): record for record in records if record.draft}
    assert len(drafted) > 3
    for place, record in drafted.items():
        if record.accepted < len(record.draft):
            assert offers[place]["head"].accepted == record.accepted
