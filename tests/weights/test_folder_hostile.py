"""Folders that lie: in the header of their weights, in the index, in the configuration, in the tokenizer."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sooner.errors import ModelError
from sooner.weights.safetensors import HEADER_BYTES, INDEX, SINGLE, TENSORS, read_folder
from tests.support.hostile import JSON, RAW, refusals, spoilt_ones
from tests.support.tiny_models import write_folder


def header(value: object, announced: int | None = None) -> bytes:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return (len(raw) if announced is None else announced).to_bytes(8, "little") + raw


def entry(begin: int, end: int, shape: tuple[int, ...] = (1,)) -> dict[str, object]:
    return {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}


def many(count: int) -> bytes:
    """Tensors of one number each."""
    return header({f"t{i}": entry(4 * i, 4 * i + 4) for i in range(count)}) + bytes(4 * count)


LYING = {
    "a header of 2^63 bytes": header({}, announced=2**63),
    "a header above the limit": header({}, announced=HEADER_BYTES + 1) + bytes(2 * HEADER_BYTES),
    "no JSON": header(b"not json"),
    "deep JSON": header(b"[" * 5000),
    "overlap": header({"a": entry(0, 4), "b": entry(0, 4)}) + bytes(4),
    "past the end": header({"a": entry(0, 2**62, (2**60,))}) + bytes(64),
    "dimensions that overflow": header({"a": entry(0, 4, (2**40, 2**40))}) + bytes(4),
    "backwards": header({"a": entry(8, 4)}) + bytes(8),
    "more bytes than the shape": header({"a": entry(0, 8)}) + bytes(8),
    "a hole": header({"a": entry(0, 4), "b": entry(8, 12)}) + bytes(12),
    "data that no tensor has": header({"a": entry(0, 4)}) + bytes(12),
    "too many tensors": many(TENSORS + 1),
    "dimensions without end": header(b'{"a":{"dtype":"F32","shape":[' + b"1," * 2_000_000 + b"1]}}"),
    "lists without end": header(b'{"a":[' + b"[]," * 1_300_000 + b"[]]}"),
    "metadata without end": header({"__metadata__": {str(i): i for i in range(300_000)}}),
    "metadata in metadata": header(b'{"__metadata__":' * 2000 + b"{}" + b"}" * 2000),
}


@pytest.mark.parametrize("name", LYING)
def test_lying_headers(tmp_path: Path, name: str) -> None:
    (tmp_path / SINGLE).write_bytes(LYING[name])
    with pytest.raises(ModelError, match=SINGLE) as caught:
        read_folder(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory where the system has such: writing a file anew takes longer than refusing it."""
    shared = Path("/dev/shm")
    with TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        yield Path(folder)


def test_thirty_thousand_spoilt_headers(memory: Path) -> None:
    """JSON, lengths and offsets. tests/weights/test_gguf_hostile.py has seventy thousand of the other format."""
    names = {"a": entry(0, 8, (2,)), "b": entry(8, 24, (2, 2)), "__metadata__": {"format": "pt"}}
    whole = header(names) + bytes(24)
    for makers, length in ((JSON, len(whole) - 24), (RAW, len(whole) - 24), (RAW, 8)):
        for spoilt in spoilt_ones(whole, length, makers, 10_000):
            (memory / SINGLE).write_bytes(spoilt)
            try:
                read_folder(memory)
            except ModelError as error:
                assert "\n" not in str(error)


LONG = 4_000_000  # characters
OTHERS: dict[str, tuple[str, str]] = {
    "lists in the configuration": ("config.json", '{"model_type":[' + "[]," * (LONG // 3) + "[]]}"),
    "deep lists in the configuration": ("config.json", "[" * LONG),
    "a long name in the configuration": ("config.json", json.dumps({"model_type": "x" * LONG})),
    "a long number in the configuration": ("config.json", '{"vocab_size":' + "9" * LONG + "}"),
    "keys in the configuration": ("config.json", json.dumps({str(i): i for i in range(250_000)})),
    "objects in the index": (INDEX, '{"weight_map":{"a":[' + "{}," * (LONG // 3) + "{}]}}"),
    "names in the index": (INDEX, json.dumps({"weight_map": {str(i): "a.safetensors" for i in range(200_000)}})),
    "lists in the tokenizer": ("tokenizer.json", '{"model":{"type":"BPE","merges":[' + "[]," * 12_000_000 + "[]]}}"),
    "tokens in the tokenizer": (
        "tokenizer.json",
        '{"model":{"type":"BPE","merges":[],"vocab":{' + ",".join(f'"{i}":{i}' for i in range(1_500_000)) + "}}}",
    ),
    "a deep tokenizer": ("tokenizer.json", '{"model":' * 4_000_000),
    "a tokenizer of zeros": ("tokenizer.json", "\0" * 30_000_000),
}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_no_lie_costs_more_than_a_second_or_200_megabytes(tmp_path: Path) -> None:
    good = write_folder(tmp_path / "good")
    files = {name: (SINGLE, content) for name, content in LYING.items()}
    files |= {name: (file, content.encode()) for name, (file, content) in OTHERS.items()}
    lies = [tmp_path / name for name in files]
    for path, (file, content) in zip(lies, files.values()):
        shutil.copytree(good, path)
        if file == INDEX:
            (path / SINGLE).unlink()
        (path / file).write_bytes(content)
    seconds = refusals(good, lies)
    assert seconds.keys() == files.keys()
    assert max(seconds.values()) < 1.0, max(seconds, key=seconds.__getitem__)
