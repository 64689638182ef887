"""`sooner certify` as a user meets it: verdicts, exit codes, JSON, the page, and what is said of wrong input."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from sooner.certify.distribution import Case
from sooner.certify.report import Report
from sooner.cli.main import main
from sooner.engine import step
from sooner.sampling.noise import Noise
from sooner.sampling.road import F32, Road
from sooner.types import Draft, Verdict
from tests.certify.servers import serving
from tests.certify.test_endpoints import server


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["sooner", "certify", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


@pytest.mark.slow
def test_a_pass_is_one_line_json_and_a_page(
    tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = tmp_path / "mine.jsonl"
    prompts.write_text('{"prompt": "the the the the"}\n{"prompt": "<b>in the inn</b>"}\n')
    page = tmp_path / "out.html"
    options = ("--draft", "ngram", "--quick", "--only", "tokens,speed", "--prompts", str(prompts))
    assert run(monkeypatch, str(tiny_file), *options, "--json", "--report", str(page)) == 0
    shown = capsys.readouterr()
    report = json.loads(shown.out)
    assert report["verdict"] == "pass" and report["line"].startswith("pass: ")
    assert report["parts"].keys() == {"tokens", "speed"}
    assert report["settings"]["prompts"] == "2 of mine.jsonl"
    assert "tokens: pass" in shown.err and "speed: pass" in shown.err
    html = page.read_text()
    assert report["line"] in html and "http" not in html.replace("http-equiv", "")
    assert run(monkeypatch, str(tiny_file), *options) == 0
    assert capsys.readouterr().out.startswith("pass: ")


def test_a_failed_check_ends_with_1_and_names_itself(
    tiny_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def believe(draft: Draft, tokens: Sequence[int], logits: F32, road: Road, noise: Noise, *_: object) -> Verdict:
        return Verdict(tuple(range(len(draft))), road.choose(logits[-1], [*tokens, *draft.tokens], noise), "bonus")

    monkeypatch.setattr(step, "judge_by_match", believe)
    assert run(monkeypatch, str(tiny_file), "--draft", "model:self/1", "--quick", "--only", "tokens") == 1
    assert capsys.readouterr().out.startswith("FAIL: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "speed"], "part speed needs a MODEL; give one, or choose --only laws,tokens,distribution"),
        (["smollm2"], "needs a draft; add --draft suffix"),
        (["smollm2", "--draft", "suffix,grammar"], "drafter 'grammar' proposes only what a request brings along"),
        (["--only", "law"], "--only 'law' is not a part; there are laws, tokens"),
        (["--endpoint", "http://localhost:1"], "give both --endpoint URL and --against URL"),
        (["m", "--endpoint", "http://localhost:1", "--against", "http://localhost:2"], "MODEL m is of no use when two"),
        (["--endpoint", "http://a", "--against", "http://b", "--quick"], "--quick True is of no use when two servers"),
        (["--only", "laws", "--requests", "7"], "--requests 7 is of no use without --endpoint and --against"),
        (["no/such.gguf", "--draft", "suffix"], "no/such.gguf"),
        (["--only", "laws", "--draft", "suffix"], "--draft suffix is of no use without a MODEL"),
        (["--only", "laws", "--prompts", "x.jsonl"], "--prompts x.jsonl is of no use without a MODEL"),
        (["smollm2", "--draft", "suffix", "--prompts", "nowhere.jsonl"], "nowhere.jsonl"),
        (["--only", "laws", "--report", "no/such/place.html"], "there is no folder no/such"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_wrong_input_ends_with_2_and_one_line(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sooner.certify.law_cases.laws", lambda quick: pytest.fail("work before the input was checked"))
    assert run(monkeypatch, *arguments) == 2
    shown = capsys.readouterr()
    assert message in shown.err and not shown.out


def test_servers_are_compared_through_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(server("m")) as tested, serving(server(first_seed=10_000)) as plain:
        (tmp_path / "one.jsonl").write_text('{"prompt": "abcabc"}')
        urls = ("--endpoint", tested.url, "--against", plain.url, "--prompts", str(tmp_path / "one.jsonl"))
        assert run(monkeypatch, *urls, "--requests", "40", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"] == "pass" and report["tests"] == 3
    assert report["false_alarm_rate"] == pytest.approx(3 * report["level"])
    assert run(monkeypatch, *urls) == 2
    assert "is the server running there?" in capsys.readouterr().err


def test_ctrl_c_ends_with_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(self: Case) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Case, "check", interrupted)
    assert run(monkeypatch, "--only", "distribution", "--quick") == 130
    assert capsys.readouterr().err.splitlines()[-1] == "sooner: interrupted"


def test_a_page_of_an_empty_report_is_still_a_page() -> None:
    assert Report({"quick": True}, []).as_html().startswith("<!doctype html>")
