from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sooner
from sooner.bench import speed
from sooner.cli.main import main


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The exit code of `sooner bench ...`."""
    monkeypatch.setattr(sys, "argv", ["sooner", "bench", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


SHORT = ("--categories", "chat", "--per-category", "1", "-n", "6", "--max-context", "256")


def test_speed_saves_what_it_prints(
    tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "speed", str(tiny_file), "--draft", "ngram", *SHORT, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    (path,) = (tmp_path / "results").glob("*/speed/*.json")
    assert json.loads(path.read_text()) == printed
    assert (
        printed["settings"]["formats"]
        and "tiny.gguf" in printed["command"]
        and str(tiny_file) not in printed["command"]
    )


def test_concurrency_measures_many_at_once(
    tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    few = ("--categories", "chat", "--per-category", "5", "-n", "6", "--max-context", "256")
    options = ("--draft", "ngram", "--draft-tokens", "3", "--concurrency", "1,4", *few)
    assert run(monkeypatch, "speed", str(tiny_file), *options, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    (path,) = (tmp_path / "results").glob("*/concurrency/*.json")
    assert json.loads(path.read_text()) == printed
    assert [level["concurrency"] for level in printed["levels"]] == [1, 4]
    for level in printed["levels"]:
        assert level["identical"] is True
        for how in ("plain", "speculative"):
            assert level[how]["tok_s"] == pytest.approx(sum(level[how]["tokens"]) / level[how]["seconds"])
            assert len(level[how]["latency_s"]) == 5
            assert all(f <= t for f, t in zip(level[how]["first_token_s"], level[how]["latency_s"]))
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "report") == 0
    assert "## Many at once: ngram (3)" in capsys.readouterr().out


def test_no_save_leaves_no_file(tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "speed", str(tiny_file), "--draft", "ngram", *SHORT, "--no-save") == 0
    assert not list(tmp_path.iterdir())


def test_lost_tokens_end_with_exit_code_1_and_no_file(
    tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = speed.measure_speed

    def lost(*arguments: Any) -> dict[str, Any]:
        return real(*arguments) | {"identical": False, "divergences": ["prompt chat-1: output token 3 is 5, 6"]}

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(speed, "measure_speed", lost)
    assert run(monkeypatch, "speed", str(tiny_file), "--draft", "ngram", *SHORT, "--json") == 1
    assert "prompt chat-1: output token 3" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("speed", "tiny"), "needs a draft"),
        (("speed", "tiny", "--draft", "ngram", "--prompts", "missing.jsonl"), "cannot read prompts"),
        (("speed", "tiny", "--draft", "ngram", "--categories", "poems"), "'poems' has no prompts"),
        (("speed", "tiny", "--draft", "ngram", "--concurrency", "1,x"), "--concurrency is '1,x'"),
        (("cost", "tiny", "--rows", "1,x"), "--rows is '1,x'"),
        (("cost", "tiny", "--context", "0"), "--context is 0"),
        (("report", "--results", "nowhere"), "nowhere holds no results"),
    ],
)
def test_refusals_name_what_is_wrong(
    arguments: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, *arguments) == 2
    assert message in capsys.readouterr().err


def test_help_does_not_wait_for_torch() -> None:
    code = "import sys, sooner.cli.main; print('torch' in sys.modules)"
    source = Path(sooner.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=source)
    assert done.stdout.strip() == "False"


@pytest.mark.slow
def test_speed_of_the_real_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = tmp_path / "two.jsonl"
    prompts.write_text('{"prompt": "Count from one to ten."}\n{"prompt": "Say hello."}\n')
    out = tmp_path / "out.json"
    options = ("--draft", "suffix", "--prompts", str(prompts), "-n", "8", "--out", str(out), "--json")
    assert run(monkeypatch, "speed", "smollm2", *options) == 0
    result = json.loads(capsys.readouterr().out)
    assert result == json.loads(out.read_text())
    assert result["identical"] is True and result["categories"]["all"]["prompts"] == 2
    assert [sample["plain"][0]["tokens"] for sample in result["samples"]] == [8, 8]
