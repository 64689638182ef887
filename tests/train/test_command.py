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


@pytest.fixture(scope="module")
def medusa(target: Path) -> Path:
    run(target, "--out", str(target / "medusa"), kind="medusa")
    return target / "medusa"


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


def test_prompts_that_leave_no_room_are_refused(target: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"0 prompts are too few, .*; give less than --max-tokens 9000"):
        run(target, "--out", str(tmp_path), "-n", "9000", kind="medusa")


def test_an_out_that_is_no_folder_is_refused(target: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cannot make the folder .*: File exists; give another --out"):
        run(target, "--out", str(tmp_path / "file"), kind="medusa")


def test_nothing_to_answer_is_refused(target: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["train", "draft", str(target), "--out", str(tmp_path)])
    assert isinstance(result.exception, InputError)
    assert "give --prompts FILE, or --invent 500" in str(result.exception)


def test_another_training_in_the_folder_is_refused(target: Path, tmp_path: Path) -> None:
    run(target, "--out", str(tmp_path), "--taps", "0,1,2")
    with pytest.raises(InputError, match="give another --out"):
        run(target, "--out", str(tmp_path), "--taps", "0,1")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--invent", "3"), "holds a training with --invent 0, not 3; give another --out"),
        (("--seed", "1"), "--seed 0, not 1"),
        (("-n", "12"), "--max-tokens 16, not 12"),
    ],
)
def test_answers_to_something_else_are_not_taken_for_these(
    target: Path, medusa: Path, options: tuple[str, ...], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        run(target, "--out", str(medusa), *options, kind="medusa")


def test_more_tokens_go_on_where_the_last_ended(target: Path, medusa: Path) -> None:
    assert "resumed at" in run(target, "--out", str(medusa), "--tokens", "120", kind="medusa")


def test_other_prompts_under_the_same_name_are_refused(target: Path, tmp_path: Path) -> None:
    prompts, out = tmp_path / "prompts.jsonl", tmp_path / "out"
    prompts.write_bytes((target / "prompts.jsonl").read_bytes())
    run(target, "--out", str(out), "--prompts", str(prompts), kind="medusa")
    prompts.write_text(prompts.read_text() + '\n{"prompt": "one more"}\n')
    with pytest.raises(InputError, match=r"--prompts prompts.jsonl \(SHA-256 \w+\), not prompts.jsonl"):
        run(target, "--out", str(out), "--prompts", str(prompts), kind="medusa")


def test_a_refused_job_leaves_nothing_that_refuses_the_next(target: Path, tmp_path: Path) -> None:
    few = tmp_path / "few.jsonl"
    few.write_text('{"prompt": "the"}\n')
    with pytest.raises(InputError, match="too few"):
        run(target, "--out", str(tmp_path / "out"), "--prompts", str(few), kind="medusa")
    run(target, "--out", str(tmp_path / "out"), kind="medusa")


@pytest.mark.parametrize("option", [("--taps", "0,1,2"), ("--vocabulary", "50")])
def test_a_head_that_is_trained_further_keeps_its_own(target: Path, tmp_path: Path, option: tuple[str, str]) -> None:
    with pytest.raises(InputError, match=f"--start and {option[0]} exclude each other"):
        run(target, "--out", str(tmp_path), "--start", str(tmp_path), *option)
