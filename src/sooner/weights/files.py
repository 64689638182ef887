"""Files of a model: large ones mapped piece by piece, small text ones read with a limit; values in messages."""

from __future__ import annotations

import json
import mmap
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from sooner.errors import ModelError

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60


def shorten(value: object) -> str:
    """One line, however long the value is."""
    return " ".join(_SHORT.repr(value).split())


def map_bytes(file: BinaryIO, start: int, count: int) -> Tensor:
    """`count` bytes of a file, uint8, as a map of their own: its memory is free again when the tensor is let go.

    The map is private and writable: torch wants writable memory, and a write would never reach the file.
    """
    if not count:
        return torch.empty(0, dtype=torch.uint8)
    lead = start % mmap.ALLOCATIONGRANULARITY
    view = mmap.mmap(file.fileno(), lead + count, access=mmap.ACCESS_COPY, offset=start - lead)
    return torch.frombuffer(view, dtype=torch.uint8, count=count, offset=lead)


def read_text(path: Path, limit: int) -> str:
    """At most `limit` bytes of UTF-8."""
    if not path.is_file():
        raise ModelError(f"{path.name} is missing; give a whole Hugging Face folder, or a .gguf file")
    size = path.stat().st_size
    if size > limit:
        raise ModelError(f"{path.name} has {size} bytes, at most {limit} are read; the file is damaged")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ModelError(f"{path.name} is not UTF-8; the file is damaged, download it again") from None


def read_json(path: Path, limit: int = 4 << 20) -> dict[str, Any]:
    """A JSON object."""
    text = read_text(path, limit)
    check_counts(path.name, text, {"[": BRACKETS, "{": BRACKETS})
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path.name} is no valid JSON: {error}; download it again") from None
    if not isinstance(value, dict):
        raise ModelError(f"{path.name} holds a {type(value).__name__}, must hold an object")
    return value


BRACKETS = 1 << 16  # of each kind; the largest tokenizer_config.json in use has 6,500


def check_counts(name: str, text: str, limits: Mapping[str, int]) -> None:
    """JSON of many empty values takes a hundred times its own bytes: how many there are is told before it is read."""
    for mark, limit in limits.items():
        if (count := text.count(mark)) > limit:
            raise ModelError(f"{name} has {count} times {mark!r}, at most {limit} are read; the file is damaged")
