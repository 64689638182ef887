"""Weights of Hugging Face folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from sooner.errors import ModelError
from sooner.kernels.formats import dequantise
from sooner.weights.safetensors import INDEX, SINGLE, read_folder

VALUES = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(4, dtype=torch.bfloat16), "c": torch.zeros(2, 2).half()}


def sharded(folder: Path, **weight_map: str) -> Path:
    save_file({"a": VALUES["a"]}, folder / "one.safetensors")
    save_file({name: VALUES[name] for name in ("b", "c")}, folder / "two.safetensors")
    names = {"a": "one.safetensors", "b": "two.safetensors", "c": "two.safetensors"} | weight_map
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": names}))
    return folder


def single(folder: Path, **values: Any) -> Path:
    save_file(VALUES | values, folder / SINGLE)
    return folder


@pytest.mark.parametrize("write", [single, sharded])
def test_every_tensor_arrives(tmp_path: Path, write: Any) -> None:
    read = read_folder(write(tmp_path))
    assert {name: stored.format for name, stored in read.items()} == {"a": "f32", "b": "bf16", "c": "f16"}
    for name, stored in read.items():
        assert stored.shape == tuple(VALUES[name].shape)
        assert torch.equal(dequantise(stored), VALUES[name].float())


def test_a_type_that_is_not_supported(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="tensor 'd' has the type F8_E4M3, which is not supported; supported: f32"):
        read_folder(single(tmp_path, d=torch.zeros(4).to(torch.float8_e4m3fn)))


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("pytorch_model.bin", "run `sooner convert /"),
        ("pytorch_model-00001-of-00002.bin", "run `sooner convert /"),
        ("consolidated.00.pth", "give a folder with safetensors weights"),
        ("model.pt", "give a folder with safetensors weights"),
    ],
)
def test_a_pickle_is_never_opened(tmp_path: Path, name: str, remedy: str) -> None:
    (tmp_path / name).write_bytes(b"\x80\x04cos\nsystem\n(S'false'\ntR.")
    with pytest.raises(ModelError, match=f"{name} is a pickle, which can run code and is never loaded; {remedy}"):
        read_folder(tmp_path)


def test_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"the folder has no model.safetensors; give a folder with"):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a": "three.safetensors"}, "names the shard 'three.safetensors', which is no file of the folder"),
        ({"a": "../one.safetensors"}, "names the shard '../one.safetensors'"),
        ({"a": "/etc/passwd"}, "names the shard '/etc/passwd'"),
        ({"z": "one.safetensors"}, "tensor 'z' is only in the index"),
    ],
)
def test_a_lying_index(tmp_path: Path, change: dict[str, str], message: str) -> None:
    with pytest.raises(ModelError) as caught:
        read_folder(sharded(tmp_path, **change))
    assert message in str(caught.value)


@pytest.mark.parametrize("content", ["{}", '{"weight_map": []}', '{"weight_map": {"a": 1}}'])
def test_an_index_without_a_map(tmp_path: Path, content: str) -> None:
    (tmp_path / INDEX).write_text(content)
    with pytest.raises(ModelError, match="has no weight_map"):
        read_folder(tmp_path)


@pytest.mark.parametrize("content", ["[]", "{", "[" * 100_000, "\ud800", '"a"', "9" * 5000])
def test_an_index_that_is_no_json_object(tmp_path: Path, content: str) -> None:
    (tmp_path / INDEX).write_bytes(content.encode(errors="surrogatepass"))
    with pytest.raises(ModelError, match=INDEX):
        read_folder(tmp_path)


def test_tensors_beside_the_index_and_twice(tmp_path: Path) -> None:
    save_file({"b": VALUES["b"], "d": VALUES["a"]}, sharded(tmp_path) / "one.safetensors")
    with pytest.raises(ModelError, match=r"tensor 'b' is in two.safetensors and in another shard"):
        read_folder(tmp_path)
    save_file({"a": VALUES["a"], "d": VALUES["c"]}, tmp_path / "one.safetensors")
    with pytest.raises(ModelError, match="tensor 'd' is not in the index"):
        read_folder(tmp_path)


def test_truncation_at_every_byte(tmp_path: Path) -> None:
    whole = (single(tmp_path) / SINGLE).read_bytes()
    for length in range(len(whole)):
        (tmp_path / SINGLE).write_bytes(whole[:length])
        with pytest.raises(ModelError, match=SINGLE):
            read_folder(tmp_path)
