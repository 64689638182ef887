"""What the page holds is what the package says today; lab-tests/ looks at the page itself."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sooner.bench.report import for_the_lab
from sooner.lab import record, results
from sooner.lab.pages import PAGE
from sooner.types import SamplingParams


def test_the_page_shows_results_as_they_are() -> None:
    fresh = results.render(results.summarise(*for_the_lab(Path("results")), Path("results")))
    shown = results.RESULTS.read_text(encoding="utf-8")
    assert shown == fresh, "the lab's results are old; run `sooner bench report --update-readme`"


def test_the_page_has_the_matrices_of_the_package() -> None:
    kept = json.loads((PAGE / "data" / "pairs.json").read_text(encoding="utf-8"))
    assert record.agree(kept, record.pairs())
    kept["published"]["P"][0][0] += 1e-9
    assert not record.agree(kept, record.pairs())


def test_word_models_play_the_classic_example() -> None:
    trace = record.words(record.GREEDY_WORDS, "match")
    texts = [([piece[1] for piece in one["draft"]], one["accepted"], one["kind"]) for one in trace["rounds"]]
    assert texts[1] == ([" like", " green", " tea"], 1, "correction")
    assert [piece[1] for one in trace["rounds"] for piece in one["committed"]] == [
        "I", " like", " black", " tea", ".", "<end>"
    ]  # fmt: skip
    assert trace["finish"] == "stop"
    shown = {one["key"]: one for one in json.loads((PAGE / "data" / "traces.json").read_text(encoding="utf-8"))}
    assert shown["words-greedy"]["rounds"] == trace["rounds"]
    sampled = record.words(SamplingParams(temperature=1.0, seed=record.SEED), "rejection")
    assert shown["words-sampled"]["rounds"] == sampled["rounds"]


def test_what_is_shown_of_many_at_once(tmp_path: Path) -> None:
    data = {
        "command": "sooner bench speed", "date": "2026-01-02T03:04:05+00:00",
        "levels": [
            {"concurrency": 4, "plain": {"tok_s": 50.0, "x": 1}, "speculative": {"tok_s": 40.0}, "identical": True}
        ],
    }  # fmt: skip
    measured = {"speed": [], "peers": [], "cost": [], "concurrency": [("title", "file", data)]}
    shown = results.summarise(measured, ["a machine"], tmp_path)
    assert shown["concurrency"] == [
        {
            "levels": [{"concurrency": 4, "plain_tok_s": 50.0, "spec_tok_s": 40.0, "identical": True}],
            "title": "title", "file": "file", "command": "sooner bench speed", "date": "2026-01-02",
        }
    ]  # fmt: skip
    assert shown["controls"] == []


@pytest.mark.slow
def test_traces_are_what_the_engine_says_today() -> None:
    shown = (PAGE / "data" / "traces.json").read_text(encoding="utf-8")
    assert shown == record.render(record.record()), "run `python -m sooner.lab.record`"


def test_the_page_is_small_and_asks_nobody_else() -> None:
    files = [path for path in PAGE.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 1_500_000
    for path in files:
        text = path.read_text(encoding="utf-8")
        found = [url for url in re.findall(r"https?://[^\s\"'<>]*", text) if not url.startswith("http://www.w3.org/")]
        assert not found, f"{path.name} names {found}"
        assert "style=" not in text or path.suffix == ".css", (
            f"{path.name} has an inline style, which the policy forbids"
        )
