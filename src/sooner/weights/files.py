"""Small text files of a model folder, read with a limit; and values from files, shown in messages."""

from __future__ import annotations

import json
import reprlib
from pathlib import Path
from typing import Any

from sooner.errors import ModelError

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60


def shorten(value: object) -> str:
    """One line, however long the value is."""
    return " ".join(_SHORT.repr(value).split())


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


def read_json(path: Path, limit: int = 8 << 20) -> dict[str, Any]:
    """A JSON object."""
    try:
        value = json.loads(read_text(path, limit))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path.name} is no valid JSON: {error}; download it again") from None
    if not isinstance(value, dict):
        raise ModelError(f"{path.name} holds a {type(value).__name__}, must hold an object")
    return value
