"""Turns the pickled weights of a folder into safetensors. Run as `python -m sooner.weights.convert FOLDER TARGET` by
`sooner convert`, so that nothing of the pickle is ever loaded in the user's own process.

torch's weights-only unpickler builds tensors and plain containers and refuses to import or call anything else.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from pickle import UnpicklingError
from zipfile import BadZipFile, is_zipfile

import torch
from safetensors.torch import save_file
from torch import Tensor

from sooner.errors import ModelError
from sooner.weights.files import read_json
from sooner.weights.safetensors import INDEX, INDEX_BYTES, SINGLE

SINGLES = ("pytorch_model.bin", "medusa_lm_head.pt")
SOURCE_INDEX = "pytorch_model.bin.index.json"


def convert(folder: Path, target: Path) -> list[Path]:
    """Writes one safetensors file for each pickle, with an index where there are several. Raises ModelError."""
    sources = _sources(folder)
    target.mkdir(parents=True, exist_ok=True)
    count = len(sources)
    names = [f"model-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)] if count > 1 else [SINGLE]
    shards: dict[str, str] = {}
    total = 0
    for source, name in zip(sources, names, strict=True):
        tensors = dict(_owned(load(source)))
        save_file(tensors, target / name, metadata={"format": "pt"})
        shards |= dict.fromkeys(tensors, name)
        total += sum(tensor.nbytes for tensor in tensors.values())
    if count > 1:
        index = {"metadata": {"total_size": total}, "weight_map": shards}
        (target / INDEX).write_text(json.dumps(index, indent=2))
    return [target / name for name in names]


def _sources(folder: Path) -> list[Path]:
    for name in SINGLES:
        if (folder / name).is_file():
            return [folder / name]
    if not (folder / SOURCE_INDEX).is_file():
        raise ModelError(f"the folder has none of {', '.join((*SINGLES, SOURCE_INDEX))}; give one of these")
    shards = read_json(folder / SOURCE_INDEX, INDEX_BYTES).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise ModelError(f"{SOURCE_INDEX} has no weight_map of tensor names to files; download it again")
    for shard in set(shards.values()):
        if not isinstance(shard, str) or Path(shard).name != shard or not (folder / shard).is_file():
            raise ModelError(f"{SOURCE_INDEX} names the shard {shard!r}, which is no file of the folder")
    return [folder / shard for shard in sorted(set(shards.values()))]


def load(path: Path) -> dict[str, Tensor]:
    """The tensors of a pickled state. Raises ModelError where the file holds anything else."""
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 6):
        raise ModelError(f"torch {torch.__version__} can be tricked by a pickle; install torch 2.6 or later to convert")
    try:
        mapped = is_zipfile(path)  # torch before 1.6 wrote a form that cannot be mapped
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except (UnpicklingError, RuntimeError, BadZipFile, EOFError, ValueError, KeyError) as error:
        line = " ".join(str(error).split())
        why = line.partition("WeightsUnpickler error: ")[2] or line  # before it torch tells how to run such a file
        raise ModelError(f"{path.name} holds more than weights, or is damaged: {why[:300]}") from None
    if not isinstance(state, dict):
        raise ModelError(f"{path.name} holds a {type(state).__name__}, must hold tensors by name")
    for name, tensor in state.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise ModelError(f"{path.name} holds {name!r} of type {type(tensor).__name__}, must hold tensors by name")
    return state


def _owned(state: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Each tensor with memory of its own, as safetensors wants it: tied ones share theirs in a pickle."""
    seen: set[int] = set()
    for name, tensor in state.items():
        start = tensor.untyped_storage().data_ptr()
        yield name, tensor.clone().contiguous() if start in seen else tensor.contiguous()
        seen.add(start)


def main(arguments: list[str]) -> int:
    """Prints the files, or one line of what is wrong with exit code 2."""
    folder, target = map(Path, arguments)
    try:
        for path in convert(folder, target):
            print(path)
    except (ModelError, OSError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
