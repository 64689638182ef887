"""Reads the weights of a Hugging Face folder: one safetensors file, or shards with an index. Never a pickle."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path

from safetensors import SafetensorError, safe_open

from sooner.errors import ModelError
from sooner.kernels.formats import DTYPES, Stored
from sooner.weights.files import check_counts, map_bytes, read_json

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
HEADER_BYTES = 4 << 20  # of a file; a mixture with 19,000 tensors in one takes 2.5 MB
INDEX_BYTES = 6 << 20
TENSORS = 1 << 15  # of a file


def read_folder(folder: Path, single: str = SINGLE, more: Collection[str] = ()) -> dict[str, Stored]:
    """All tensors by the files' own names, as maps of the files. Raises ModelError.

    single: the file that holds all of them where there is no index. more: types that are taken beside those of weights,
    as "i64" and "bool".
    """
    index = _index(folder, single)
    tensors: dict[str, Stored] = {}
    for shard in sorted(set(index.values())) if index else [single]:
        for name, stored in _shard(folder / shard, more):
            if name in tensors:
                raise ModelError(f"tensor {name!r} is in {shard} and in another shard; the folder is damaged")
            tensors[name] = stored
    _check_index(index, tensors)
    return tensors


def _index(folder: Path, single: str) -> dict[str, str]:
    """Tensor name -> shard; empty when the folder has one file."""
    if (folder / single).is_file():
        return {}
    if not (folder / INDEX).is_file():
        raise ModelError(_nothing_to_read(folder))
    shards = read_json(folder / INDEX, INDEX_BYTES).get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(shard, str) for shard in shards.values()):
        raise ModelError(f"{INDEX} has no weight_map of tensor names to files; download it again")
    for shard in set(shards.values()):
        if Path(shard).name != shard or not (folder / shard).is_file():
            raise ModelError(f"{INDEX} names the shard {shard!r}, which is no file of the folder; download it again")
    return shards


def _nothing_to_read(folder: Path) -> str:
    pickles = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in folder.glob(pattern))
    if not pickles:
        return f"the folder has no {SINGLE}; give a folder with safetensors weights, or a .gguf file"
    known = any(name.startswith(("pytorch_model", "medusa_lm_head")) for name in pickles)
    remedy = f"run `sooner convert {folder}`" if known else "give a folder with safetensors weights"
    return f"{pickles[0]} is a pickle, which can run code and is never loaded; {remedy}"


def _shard(path: Path, more: Collection[str]) -> Iterator[tuple[str, Stored]]:
    """The library checks the header and every offset in it; the tensors are mapped one by one, to be let go so."""
    header = _header(path)
    try:
        with safe_open(path, framework="pt"):
            pass
    except SafetensorError as error:
        raise ModelError(f"{path.name} is no valid safetensors file: {error}; download it again") from None
    with path.open("rb") as file:
        for name, entry in json.loads(header).items():
            if name != "__metadata__":
                start, end = entry["data_offsets"]
                data = map_bytes(file, 8 + len(header) + start, end - start)
                yield name, Stored(_format(name, entry["dtype"], more), tuple(entry["shape"]), data)


def _header(path: Path) -> bytes:
    """The JSON before the tensors: the library takes memory for whatever a file announces."""
    with path.open("rb") as file:
        announced = int.from_bytes(file.read(8), "little")
        room = min(path.stat().st_size - 8, HEADER_BYTES)
        if announced > room:
            raise ModelError(
                f"{path.name} announces a header of {announced} bytes, there is room for {room}; it is damaged"
            )
        header = file.read(announced)
    check_counts(path.name, header.decode(errors="replace"), {"{": TENSORS, "[": 2 * TENSORS})
    return header


def _format(name: str, dtype: str, more: Collection[str]) -> str:
    if dtype.lower() not in (*DTYPES, *more):
        supported = ", ".join(DTYPES)
        raise ModelError(f"tensor {name!r} has the type {dtype}, which is not supported; supported: {supported}")
    return dtype.lower()


def _check_index(index: dict[str, str], tensors: dict[str, Stored]) -> None:
    """What the index promises is there, and nothing else."""
    if index and index.keys() != tensors.keys():
        name = min(index.keys() ^ tensors.keys())
        where = "only in the index" if name in index else "not in the index"
        raise ModelError(f"tensor {name!r} is {where} {INDEX}; the folder is incomplete, download it again")
