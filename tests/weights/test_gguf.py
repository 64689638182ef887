"""The GGUF reader against the `gguf` package, which is an independent reader of the same format."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from sooner.kernels import formats
from sooner.kernels.formats import DTYPES, FORMATS, Stored, convert, dequantise, exactly
from sooner.models.locate import find_model
from sooner.weights.gguf import TYPES, GgufFile, read_gguf
from sooner.weights.safetensors import read_folder
from tests.support import forged_gguf as forged
from tests.support.quants import random_quants
from tests.support.tiny_models import tiny_metadata, tiny_tensors, write_gguf


def assert_same_bytes(ours: GgufFile, theirs: Any) -> None:
    assert set(ours.tensors) == {tensor.name for tensor in theirs.tensors}
    for tensor in theirs.tensors:
        stored = ours.tensors[tensor.name]
        assert stored.format == tensor.tensor_type.name.lower()
        assert stored.shape == tuple(reversed(tensor.shape.tolist()))
        np.testing.assert_array_equal(stored.data.numpy(), tensor.data.view(np.uint8).reshape(-1), tensor.name)


def assert_same_values(stored: Stored, tensor: Any) -> None:
    expected = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(stored.shape)
    np.testing.assert_array_equal(dequantise(stored).numpy().view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("kind", [name.upper() for name in FORMATS])
def test_every_format_dequantises_to_the_same_bits(tmp_path: Path, kind: str) -> None:
    shapes = ((1, 256), (7, 768), (64, 256))
    tensors = {f"t{rows}": random_quants(kind.lower(), rows, columns, seed=rows) for rows, columns in shapes}
    path = write_gguf(tmp_path / "m.gguf", {}, tensors)
    ours, theirs = read_gguf(path), gguf.GGUFReader(path)
    assert_same_bytes(ours, theirs)
    for tensor in theirs.tensors:
        assert_same_values(ours.tensors[tensor.name], tensor)


def test_large_tensors_are_taken_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = random_quants("q4_k", 11, 512)
    whole = dequantise(stored)
    monkeypatch.setattr(formats, "_CHUNK", 5)
    assert torch.equal(dequantise(stored), whole)
    assert torch.equal(dequantise(exactly(stored, ("g32q4",))), whole)


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in DTYPES])
def test_a_format_without_kernels_is_kept_exactly(name: str) -> None:
    """Q5_0 has scale and quants of Q8_0's kind; others have formats in memory; where those are unknown, float32."""
    stored = random_quants(name, 5, 512)
    in_memory = {"q5_1": "g32q8", "q4_k": "g32q4", "q5_k": "g32q8", "q6_k": "g16q8"}
    few, all_known = ("f32", "q8_0", "q4_1"), ("f32", "q8_0", "q4_0", "q4_1", *in_memory.values())
    for known, expected in ((few, {}), (all_known, in_memory | {"q4_0": "q4_0"})):
        kept = exactly(stored, known)
        names = {"q8_0": "q8_0", "q5_0": "q8_0", "q4_1": "q4_1"} | expected
        assert kept.format == names.get(name, "f32")
        assert torch.equal(dequantise(kept), dequantise(stored))
    assert convert(stored, "q8").format == "q8_0"
    assert torch.equal(dequantise(convert(stored, "q8")), dequantise(stored)) or name not in ("q8_0", "q5_0")


def test_metadata_of_every_kind(tmp_path: Path) -> None:
    values = tiny_metadata() | {"floats": [0.5, -1.0], "flags": [True, False, True], "whole": [2**30, -1]}
    metadata = read_gguf(write_gguf(tmp_path / "m.gguf", values)).metadata
    assert metadata["general.architecture"] == "llama"
    for key, value in values.items():
        ours: Any = metadata[key]
        assert (ours.tolist() if isinstance(ours, np.ndarray) else ours) == pytest.approx(value), key


@pytest.mark.parametrize(
    ("kind", "raw", "value"),
    [
        (forged.U8, b"\xff", 255),
        (forged.I8, b"\xff", -1),
        (forged.U16, b"\x01\x02", 513),
        (forged.I16, b"\xfe\xff", -2),
        (forged.U32, b"\x00\x00\x00\x80", 1 << 31),
        (forged.I32, b"\x00\x00\x00\x80", -(1 << 31)),
        (forged.F32, b"\x00\x00\xc0\x3f", 1.5),
        (forged.BOOL, b"\x01", True),
        (forged.U64, b"\xff" * 8, 2**64 - 1),
        (forged.I64, b"\xff" * 8, -1),
        (forged.F64, b"\x00" * 6 + b"\xf8\x3f", 1.5),
        (forged.STRING, forged.text("é"), "é"),
    ],
)
def test_scalars(tmp_path: Path, kind: int, raw: bytes, value: object) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(forged.forge([forged.key("k", kind, raw)]))
    read = read_gguf(path).metadata["k"]
    assert read == value
    assert type(read) is type(value)


def test_version_2_and_another_alignment(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    entry = [forged.tensor("t", (4, 2), offset=64)]
    header = forged.forge([forged.key("general.alignment", forged.U32, b"\x40\0\0\0")], entry, version=2)
    path.write_bytes(header + bytes(-len(header) % 64) + bytes(64) + np.arange(8, dtype="<f4").tobytes())
    assert dequantise(read_gguf(path).tensors["t"]).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_tensors_are_maps_of_the_file_and_writes_do_not_reach_it(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", tensors=tiny_tensors())
    before = path.read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tensors = read_gguf(path).tensors
    tensors["output.weight"].data.zero_()
    assert path.read_bytes() == before


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("read", [lambda path: read_gguf(path).tensors, lambda path: read_folder(path.parent)])
def test_a_tensor_that_is_let_go_frees_its_map(read: Any, tmp_path: Path) -> None:
    """So that loading takes no more than the packed weights and what is not packed yet."""
    write_gguf(tmp_path / "model.gguf", tensors=tiny_tensors())
    save_file({f"w{i}": torch.ones(64, 64) for i in range(20)}, tmp_path / "model.safetensors")

    def maps() -> int:
        return sum(f"{tmp_path}/model." in line for line in Path("/proc/self/maps").read_text().splitlines())

    tensors = dict(read(tmp_path / "model.gguf"))
    count = maps()
    assert count == len(tensors)
    tensors.popitem()
    assert maps() == count - 1
    tensors.clear()
    assert maps() == 0


def test_names_of_types_are_those_of_the_package() -> None:
    assert {int(kind): kind.name for kind in gguf.GGMLQuantizationType}.items() <= TYPES.items()


@pytest.mark.slow
def test_the_real_model_agrees_with_the_package() -> None:
    path = find_model("smollm2")
    ours, theirs = read_gguf(path), gguf.GGUFReader(path)
    assert_same_bytes(ours, theirs)
    for tensor in theirs.tensors[1:12]:  # one layer, without the large embedding
        assert_same_values(ours.tensors[tensor.name], tensor)
    for key in ("llama.block_count", "tokenizer.ggml.pre", "tokenizer.chat_template", "llama.rope.freq_base"):
        assert ours.metadata[key] == theirs.fields[key].contents()
    assert ours.metadata["tokenizer.ggml.merges"] == theirs.fields["tokenizer.ggml.merges"].contents()
