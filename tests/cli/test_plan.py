"""`sooner plan`: with a model, a plan that later starts take; without one, what-if and other engines' flags."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sooner.plan.cost import NOISY
from tests.cli.test_generate import sooner
from tests.support.tiny_models import write_gguf


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("plan") / "tiny.gguf")


@pytest.fixture(scope="module")
def plan(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planned")
    prompts = folder / "prompts.jsonl"
    prompts.write_text("\n".join(json.dumps({"prompt": text}) for text in ("the the the the", "in the in the")))
    out = folder / "plan.json"
    done = sooner(
        *("plan", tiny, "--draft", "suffix,model:self/1", "--prompts", prompts, "-n", "24", "--concurrency", "1,2"),
        *("--out", out, "--plots", folder),
    )
    assert done.returncode == 0, done.stderr
    for part in ("in flight", "theory", "of 16 full contexts", "At 1 request in flight", "At 2 requests in flight"):
        assert part in done.stdout
    spread = json.loads(out.read_text())["start"]["table"]["spread"]
    assert ("do not trust" in done.stderr) == (spread > NOISY)
    return out


def test_a_plan_tells_costs_theory_memory_and_verdict(plan: Path) -> None:
    data = json.loads(plan.read_text())
    assert [cell["concurrency"] for cell in data["cells"] if cell["category"] == "all"] == [1, 2]
    assert {one["drafter"] for one in data["theory"]} == {"suffix", "model:self/1"}
    model = next(one for one in data["memory"] if one["drafter"] == "model:self/1")
    assert model["weight_bytes"] == 0 and model["token_bytes"] > 0 and model["contexts_of_16"] < 16
    assert sorted(path.name for path in plan.parent.glob("*.png")) == [
        f"plan-{name}.png" for name in ("acceptance", "concurrency", "cost", "length")
    ]


def test_generate_starts_from_a_plan(tiny: Path, plan: Path, tmp_path: Path) -> None:
    """Its drafters are taken and nothing is measured: no table is written where tables are kept."""
    os.environ["SOONER_CACHE"] = str(tmp_path)
    try:
        done = sooner("generate", tiny, "-p", "the the", "-n", "12", "--raw", "--plan", plan, "--json")
    finally:
        del os.environ["SOONER_CACHE"]
    assert done.returncode == 0, done.stderr
    plain = sooner("generate", tiny, "-p", "the the", "-n", "12", "--raw", "--json")
    assert json.loads(done.stdout)["token_ids"] == json.loads(plain.stdout)["token_ids"]
    assert not list(tmp_path.rglob("*.json"))


def test_a_plan_of_another_model_is_refused(plan: Path, tmp_path: Path) -> None:
    data = json.loads(plan.read_text())
    data["start"]["of"]["threads"] += 1
    other = tmp_path / "other.json"
    other.write_text(json.dumps(data))
    done = sooner("generate", data["settings"]["model"], "-p", "the", "--raw", "--plan", other)
    assert done.returncode == 2 and "threads" in done.stderr and "run sooner plan again" in done.stderr


def test_what_is_no_plan_is_refused(tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("{}")
    done = sooner("generate", tiny, "-p", "the", "--plan", path)
    assert done.returncode == 2 and "is not a plan" in done.stderr


def test_what_if_needs_no_model(plan: Path) -> None:
    done = sooner("plan", "--what-if", "--alpha", "0.8", "--draft-cost", "0.05", "--concurrency", "1", "--json")
    [row] = json.loads(done.stdout)
    assert row["best_length"] == 8 and row["by_length"]["4"] == pytest.approx(3.3616 / 1.2)
    measured = sooner("plan", "--what-if", "--verification", plan, "--concurrency", "1,4")
    assert measured.returncode == 0 and "at most 3.33 tokens a round" in measured.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "plan needs a model"),
        (("--emit", "vllm"), "--measured FILE"),
        (("--emit", "other"), "must be vllm or llama.cpp"),
        (("--what-if", "--alpha", "1.2"), "between 0 and 1"),
        (("--what-if", "--alpha", "x"), "numbers with commas"),
        (("smollm2", "--alpha", "0.5"), "--alpha needs --what-if"),
        (("smollm2", "--draft-cost", "0"), "--draft-cost needs --what-if"),
        (("smollm2", "--measured", "x.json"), "--measured needs --emit"),
        (("--what-if", "--emit", "vllm"), "--emit does not go with --what-if"),
        (("smollm2", "--what-if"), "MODEL is not looked at here"),
        (("--what-if", "--verification", "0"), "above 0"),
        (("--what-if", "--verification", "/no/such.json"), "cannot read"),
    ],
)
def test_wrong_words_are_named(words: tuple[str, ...], message: str) -> None:
    done = sooner("plan", *words)
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr


def test_flags_for_another_engine(tmp_path: Path) -> None:
    path = tmp_path / "there.json"
    path.write_text(
        json.dumps({"pass_ms": {"1": 20, "8": 26}, "acceptance": [0.8, 0.7], "drafter": {"method": "ngram"}})
    )
    done = sooner("plan", "--emit", "vllm", "--measured", path)
    assert done.returncode == 0 and done.stdout.startswith("--speculative-config '{")
