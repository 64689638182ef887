"""`sooner pull`, `models` and `convert`."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from sooner.errors import ModelError
from sooner.models import hub as hub_module
from sooner.models.checkpoint import open_checkpoint
from sooner.weights import convert
from tests.cli.test_generate import sooner
from tests.support.fake_hub import FakeHub, serve
from tests.support.tiny_models import write_folder


def test_pull_and_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = write_folder(tmp_path / "folder")
    cache = tmp_path / "cache"
    with serve(FakeHub("org/tiny", {path.name: path.read_bytes() for path in written.iterdir()})) as hub:
        fetch, known = hub_module.pull, hub_module.cached_models
        monkeypatch.setattr(hub_module, "pull", lambda name: fetch(name, cache, hub.endpoint))
        monkeypatch.setattr(hub_module, "cached_models", lambda: known(cache))
        done = sooner("pull", "org/tiny")
        assert done.returncode == 0, done.stderr
        path = Path(done.stdout.strip())
        assert open_checkpoint(path).config.layers == 2
        found = {model["name"]: model for model in json.loads(sooner("models", "--json").stdout)}
        assert found["org/tiny"]["path"] == str(path)
        assert found["org/tiny"]["bytes"] == sum(file.stat().st_size for file in path.iterdir())
        lines = sooner("models").stdout.splitlines()
        assert [line.split()[0] for line in lines] == list(found)
        assert sooner("pull", "org/other").stderr.startswith("sooner: model 'org/other' is not on the hub")
    assert sooner("pull", "tiny").stderr.startswith("sooner: 'tiny' is no name on the hub; write org/name")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint with one .bin file, head and embedding tied in memory."""
    path = write_folder(tmp_path / "model", tie_word_embeddings=True)
    state = load_file(path / "model.safetensors")
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    torch.save(state, path / "pytorch_model.bin")
    (path / "model.safetensors").unlink()
    return path


def test_a_pickle_is_refused_with_the_command_and_the_command_helps(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=f"pytorch_model.bin is a pickle.*run `sooner convert {folder}`"):
        open_checkpoint(folder)
    done = sooner("convert", folder, "--to", tmp_path / "other")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / "other" / "model.safetensors")
    assert open_checkpoint(tmp_path / "other").config.tied
    convert.convert(folder, folder)
    assert open_checkpoint(folder).config.tied


def test_a_pickle_from_before_torch_1_6(folder: Path) -> None:
    """Its form is no zip archive, and cannot be mapped."""
    state = torch.load(folder / "pytorch_model.bin", weights_only=True)
    torch.save(state, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    convert.convert(folder, folder)
    assert torch.equal(load_file(folder / "model.safetensors")["model.norm.weight"], state["model.norm.weight"])


def test_shards_are_converted_one_by_one(folder: Path) -> None:
    state = torch.load(folder / "pytorch_model.bin", weights_only=True)
    (folder / "pytorch_model.bin").unlink()
    names = list(state)
    halves = {"a.bin": names[:5], "b.bin": names[5:]}
    for file, some in halves.items():
        torch.save({name: state[name] for name in some}, folder / file)
    index = {"weight_map": {name: file for file, some in halves.items() for name in some}}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    assert [path.name[:11] for path in convert.convert(folder, folder)] == ["model-00001", "model-00002"]
    opened = open_checkpoint(folder)
    assert torch.equal(opened.tensors["norm"].data.view(torch.float32), state["model.norm.weight"])


class Evil:
    def __reduce__(self) -> Any:
        return print, ("this must not run",)


def test_code_in_a_pickle_does_not_run(folder: Path) -> None:
    torch.save({"w": Evil()}, folder / "pytorch_model.bin")
    done = sooner("convert", folder)
    assert done.returncode == 2
    assert "pytorch_model.bin holds more than weights, or is damaged: " in done.stderr
    assert "this must not run" not in done.stdout + done.stderr
    assert not (folder / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"w": {"deep": torch.ones(2)}}, "holds 'w' of type dict, must hold tensors by name"),
        ({3: torch.ones(2)}, "holds 3 of type Tensor, must hold tensors by name"),
        ([torch.ones(2)], "holds a list, must hold tensors by name"),
    ],
)
def test_what_is_no_weights_is_refused(folder: Path, content: Any, message: str) -> None:
    torch.save(content, folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=f"pytorch_model.bin {message}"):
        convert.convert(folder, folder)
    assert not (folder / "model.safetensors").exists()


def test_a_bare_pickle_and_a_missing_one_are_refused(folder: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"w": Evil()}))
    with pytest.raises(ModelError, match="holds more than weights, or is damaged"):
        convert.convert(folder, folder)
    (folder / "pytorch_model.bin").unlink()
    with pytest.raises(ModelError, match=r"none of pytorch_model.bin, medusa_lm_head.pt, pytorch_model.bin.index.json"):
        convert.convert(folder, folder)
    (folder / "pytorch_model.bin.index.json").write_text('{"weight_map": {"w": "../up.bin"}}')
    with pytest.raises(ModelError, match=r"names the shard '../up.bin', which is no file of the folder"):
        convert.convert(folder, folder)
