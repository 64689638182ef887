"""Part 2: clean on the engine as it is, and clear about an engine that is not."""

from collections.abc import Sequence
from typing import Any

import pytest

from sooner.certify.subject import Subject
from sooner.certify.tokens import SETTINGS, Comparison, tokens
from sooner.engine import step
from sooner.engine.judge import judge_by_match
from sooner.sampling.noise import Noise
from sooner.sampling.road import F32, Road
from sooner.types import Draft, Verdict


def test_every_drafter_setting_and_batch_is_equal(subject: Subject) -> None:
    for job in tokens(quick=True, seed=3, subject=subject).jobs:
        for check in job.run():
            assert check.ok, (check.name, check.text)


def test_the_largest_batches_meet_every_setting_with_every_draft_length(subject: Subject) -> None:
    comparison = Comparison(subject, 2, 0)
    met = {
        (name, (k - 1) % 8 + 1)
        for rotation in range(8)
        for k, name in enumerate(comparison.batch("ngram", 8, rotation)[0].figures["settings"], 1)
    }
    assert len(met) == 8 * len(SETTINGS)


def test_settings_change_the_answer(subject: Subject) -> None:
    """A setting that does nothing would test nothing."""
    comparison = Comparison(subject, 20, 0)
    greedy = comparison.plain(3, "greedy")
    for name in ("top-p", "min-p", "penalties", "bias"):
        assert comparison.plain(3, name).token_ids != greedy.token_ids
    assert comparison.plain(3, "stop").finish_reason == "stop"
    assert len(comparison.plain(3, "stop").token_ids) < len(greedy.token_ids)
    assert comparison.plain(3, "greedy, block").token_ids == greedy.token_ids


def test_an_engine_that_believes_its_drafter_is_a_bug(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    def believe(draft: Draft, prefix: Sequence[int], logits: F32, road: Road, noise: Noise, *_: object) -> Verdict:
        verdict = judge_by_match(draft, prefix, logits, road, noise)
        return Verdict((0,), verdict.last_token, "correction") if len(draft) and not verdict.path else verdict

    comparison = Comparison(subject, 12, 0)
    truths = [comparison.plain(i, name) for i, name in enumerate(SETTINGS[:4])]
    monkeypatch.setattr(step, "judge_by_match", believe)
    [check] = comparison.batch("model:self/1", 4, 0)
    assert not check.ok and "bug at output token" in check.text
    found: list[dict[str, Any]] = check.figures["divergences"]
    for one in found:
        truth = truths[one["prompt"]]
        assert (one["plain"], one["difference"], one["bound"]) == (truth.token_ids[one["position"]], 0.0, 0.0)
        assert one["margin"] > 0 and one["plain"] != one["speculative"]


def test_a_drafter_that_fails_is_no_pass(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("out of ideas")

    monkeypatch.setattr(type(subject.drafters["ngram"]), "propose", fail)
    with pytest.warns(RuntimeWarning, match="out of ideas"):
        [check] = Comparison(subject, 8, 0).batch("ngram", 1, 0)
    assert not check.ok and "out of ideas" in check.text


def test_rows_of_two_shapes_have_equal_bits(subject: Subject) -> None:
    assert subject.decoder.kernels.exact_rows
    [check] = Comparison(subject, 8, 0).rows(0)
    assert check.ok and check.figures["difference"] == 0.0 == check.figures["bound"]
