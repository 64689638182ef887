"""Chunked prompts, admission and preemption never change what a request answers (CASES.md 18 and 21)."""

from dataclasses import replace

import pytest

from sooner.draft.model import ModelDrafter
from sooner.engine.stats import Stats
from sooner.types import Draft, RoundRecord, SamplingParams
from tests.support.engines import VOCABULARY, engine, plain, request, run, tiny_decoder

SAMPLED = SamplingParams(temperature=0.9, seed=3, max_tokens=24)


@pytest.mark.parametrize("max_rows", [1, 7, 16, 512])
def test_a_prompt_may_come_in_chunks(max_rows: int) -> None:
    one = request(range(1, 38), SAMPLED)
    machine, records = engine(max_rows=max_rows)
    assert run(machine, [one])[0].tokens == plain(one).tokens
    assert sum(r.reason == "prefill" for r in records) == -(-37 // max_rows)


@pytest.mark.parametrize("pages", [5, 6, 9])
def test_sequences_are_preempted_when_pages_run_out_and_resume_as_if_nothing_had_happened(pages: int) -> None:
    requests = [request(range(1, 12 + 6 * i), SAMPLED, "m", k) for i, k in enumerate((4, 2, 0, 7))]
    machine, records = engine({"m": ModelDrafter("m", tiny_decoder(4, 1), VOCABULARY, 64)}, cache_tokens=16 * pages)
    answers = run(machine, requests)
    assert [a.tokens for a in answers] == [plain(r).tokens for r in requests]
    prefills = sum(r.reason == "prefill" for r in records)
    assert prefills > len(requests) if pages == 5 else prefills >= len(requests)


def test_only_so_many_run_at_once() -> None:
    machine, records = engine(max_sequences=2)
    run(machine, [request([1, 2, i]) for i in range(5)])
    assert machine.scheduler.max_sequences == 2
    assert len({r.request_id for r in records}) == 5


def chain_round(drafted: int, accepted: int) -> RoundRecord:
    draft = Draft.chain((1,) * drafted)
    committed = (1,) * (accepted + 1)
    return RoundRecord("r", 3, "d", "match", "", draft.tokens, draft.parents, accepted, committed, "bonus", 1, 1, 1, 1)


def test_acceptance_by_position_counts_the_depth_of_trees() -> None:
    stats = Stats()
    record = chain_round(3, 1)
    stats.add(replace(record, draft=(1, 2, 3), parents=(-1, -1, 1)))  # two places, of which one was right
    assert stats.acceptance_rate == 1 / 3
    assert stats.acceptance_by_position == [1.0, 0.0]


def test_acceptance_stops_at_the_first_rejection_and_never_exceeds_one() -> None:
    """CASES.md 28 and 29."""
    stats = Stats()
    for drafted, accepted in ((4, 1), (4, 4), (2, 0), (0, 0)):
        stats.add(chain_round(drafted, accepted))
    assert stats.acceptance_rate == 0.5
    assert stats.tokens_per_round == 9 / 4
    assert stats.acceptance_by_position == [2 / 3, 1 / 3, 1 / 2, 1 / 2]
    assert stats.tokens_per_second == 9 / 16
