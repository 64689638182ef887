from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sooner.errors import InputError
from sooner.plan.formulas import best_length, expected_tokens, speedup
from sooner.plan.schedule import Situation, emit, free_curve, measured_elsewhere, schedule

MEASURED = {
    "pass_ms": {"1": 20.0, "4": 24.0, "16": 60.0, "64": 220.0},
    "draft_ms": 0.5,
    "acceptance": [0.7, 0.6, 0.5],
    "max_batch": 32,
    "drafter": {"method": "ngram", "prompt_lookup_max": 4},
}


@given(st.floats(0.0, 1.0), st.integers(1, 16), st.floats(0.0, 1.0))
def test_one_rate_and_free_verification_are_the_theorem(alpha: float, k: int, c: float) -> None:
    situation = Situation(free_curve(), (alpha,) * 16, c)
    assert situation.tokens(k) == pytest.approx(expected_tokens(alpha, k))
    assert situation.speedup(3, k) == pytest.approx(speedup(alpha, k, c))


def test_the_best_length_is_the_theorems_where_it_pays() -> None:
    for alpha in (0.3, 0.6, 0.8, 0.95):
        situation = Situation(free_curve(), (alpha,) * 16, 0.1)
        assert situation.best(1) == best_length(alpha, 0.1, 16)


def test_nothing_is_drafted_where_rows_cost_as_much_as_they_bring() -> None:
    assert Situation(free_curve((1.0, 2.0, 3.0)), (0.9, 0.9), 0.0).best(1) == 0


def test_break_even_is_where_a_round_takes_plain_time() -> None:
    situation = Situation(free_curve((1.0, 1.1, 1.3)), (0.5, 0.5), 0.05)
    share = situation.break_even(1, 2)
    assert (1.0 + 2 * share) / situation.round_seconds(1, 2) == pytest.approx(1.0)


def test_a_schedule_covers_every_batch_once_with_its_best_length() -> None:
    situation, _, most = measured_elsewhere(MEASURED, "file")
    entries = schedule(situation, most)
    lengths = {batch: k for first, last, k in entries for batch in range(first, last + 1)}
    assert list(lengths) == list(range(1, 33)) and len({*lengths.values()}) > 1
    assert all(k == situation.best(batch) for batch, k in lengths.items())


def test_vllm_gets_its_config_and_llama_cpp_its_flags() -> None:
    situation, drafter, most = measured_elsewhere(MEASURED, "file")
    flag, config = shlex.split(emit("vllm", situation, drafter, most))
    parsed = json.loads(config)
    assert flag == "--speculative-config" and parsed["method"] == "ngram"
    per_batch = parsed["num_speculative_tokens_per_batch_size"]
    assert parsed["num_speculative_tokens"] == max(k for _, _, k in per_batch) > 0
    assert emit("llama.cpp", situation, {"spec-type": "ngram-simple"}, 1) == (
        f"--spec-type ngram-simple --draft-min 0 --draft-max {situation.best(1)}"
    )


def test_where_drafting_never_pays_nothing_is_emitted() -> None:
    situation = Situation(free_curve((1.0, 2.0)), (0.1,))
    assert emit("vllm", situation, {}, 8) == emit("llama.cpp", situation, {}, 8) == ""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pass_ms": {"1": 5.0}}, "at least two numbers of rows"),
        ({"pass_ms": {"2": 5.0, "4": 6.0}}, "a plain pass has 1"),
        ({"pass_ms": [1, 2]}, "milliseconds by rows"),
        ({"pass_ms": {"1": "fast", "2": 1.0}}, "'fast'"),
        ({"acceptance": [1.5]}, "acceptance is 1.5"),
        ({"acceptance": []}, "acceptance is empty"),
        ({"acceptance": 0.5}, "list of chances"),
        ({"draft_ms": -1}, "must be at least 0"),
        ({"max_batch": 0}, "max_batch is 0"),
        ({"drafter": "ngram"}, "drafter is 'ngram'"),
        ({"surplus": 1}, "nothing else"),
    ],
)
def test_a_bad_file_is_refused_by_its_field(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        measured_elsewhere(MEASURED | change, "file")
