"""What the benchmarks keep: figures with the command and settings that made them, and no place of this machine."""

from __future__ import annotations

import argparse
import json
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from benchmarks import saving


def test_settings_and_figures_are_kept_without_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "ROOT", tmp_path)
    asked = {"save": True, "tokens": 3, "prompts": Path("/somewhere/mine.jsonl"), "folder": "/somewhere/model"}
    saving.save("many", argparse.Namespace(**asked), {"ms": 1.5})
    [path] = tmp_path.rglob("*.json")
    kept = json.loads(path.read_text(encoding="utf-8"))
    assert kept["ms"] == 1.5
    assert kept["settings"] == {"tokens": 3, "prompts": "mine.jsonl", "folder": "model"}
    assert "/somewhere" not in path.read_text(encoding="utf-8")


def test_nothing_is_written_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "ROOT", tmp_path)
    saving.save("many", argparse.Namespace(save=False), {"ms": 1.5})
    assert not list(tmp_path.iterdir())


def test_the_command_names_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/somewhere/many.py", "--save"])
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "__spec__", ModuleSpec("benchmarks.many", None))
    assert saving.command() == ["python", "-m", "benchmarks.many", "--save"]
    monkeypatch.setattr(main, "__spec__", None)  # run as a file
    assert saving.command() == ["python", "/somewhere/many.py", "--save"]
