"""`sooner train` as a user meets it: what it prints, and how it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sooner.cli.main import app
from sooner.errors import InputError
from tests.support.tiny_models import write_folder


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_folder(tmp_path_factory.mktemp("target"))
    (folder / "prompts.jsonl").write_text("\n".join(json.dumps({"prompt": f"the {i} in"}) for i in range(18)))
    return folder


def run(target: Path, *more: str, kind: str = "eagle") -> str:
    options = ["--prompts", str(target / "prompts.jsonl"), "-n", "16", "--tokens", "100", "--threads", "1"]
    result = CliRunner().invoke(app, ["train", kind, str(target), *options, *more])
    if result.exception:
        raise result.exception
    return result.stdout


def test_it_says_what_it_does(target: Path, tmp_path: Path) -> None:
    said = run(target, "--out", str(tmp_path), "--taps", "0,1,2", "--vocabulary", "50", "--invent", "3")
    assert "prompts, " in said
    assert "tokens a round" in said
    assert said.strip().endswith("model.safetensors, config.json, README.md, curve.json")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--taps", "2,1,0"), "must ascend"),
        (("--taps", "first"), "must be layers such as"),
        (("--format", "gguf"), "must be eagle3 or speculators"),
        (("--prompts", "no.jsonl", "--taps", "0,1,2"), "cannot read prompts from no.jsonl"),
    ],
)
def test_it_refuses_by_name(target: Path, tmp_path: Path, options: tuple[str, ...], says: str) -> None:
    with pytest.raises(InputError, match=says):
        run(target, "--out", str(tmp_path), *options)


def test_too_few_prompts_are_refused(target: Path, tmp_path: Path) -> None:
    few = tmp_path / "few.jsonl"
    few.write_text('{"prompt": "the"}\n')
    with pytest.raises(InputError, match="1 prompts are too few, at least 17 are needed; add --invent 500"):
        run(target, "--out", str(tmp_path), "--prompts", str(few), kind="medusa")


def test_nothing_to_answer_is_refused(target: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["train", "draft", str(target), "--out", str(tmp_path)])
    assert isinstance(result.exception, InputError)
    assert "give --prompts FILE, or --invent 500" in str(result.exception)


def test_another_training_in_the_folder_is_refused(target: Path, tmp_path: Path) -> None:
    run(target, "--out", str(tmp_path), "--taps", "0,1,2")
    with pytest.raises(InputError, match="give another --out"):
        run(target, "--out", str(tmp_path), "--taps", "0,1")
