"""Results on disk: results/<machine>/<suite>/<date>-<commit>.json, one file for each run, never written over."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from sooner.errors import InputError

RESULTS = Path("results")
SUITES = ("cost", "speed", "concurrency", "peers", "demo")


@dataclass(frozen=True, slots=True)
class Result:
    """One file: what was asked for (`settings`), of which machine, when, and what came out (`data`)."""

    path: Path
    data: Mapping[str, Any]

    @property
    def machine(self) -> str:
        return str(self.data["machine"]["slug"])

    @property
    def suite(self) -> str:
        return str(self.data["suite"])

    @property
    def date(self) -> str:
        return str(self.data["date"])


def envelope(
    suite: str, machine: Mapping[str, Any], command: Sequence[str], settings: Mapping[str, Any], seed: int
) -> dict[str, Any]:
    """What every result begins with. settings: two results with equal settings answer the same question.

    Of absolute paths in the command only the file's name is kept: they mean nothing on another machine.
    """
    words = [Path(word).name if Path(word).is_absolute() else word for word in command]
    return {
        "suite": suite,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": dict(machine),
        "command": shlex.join(words),
        "settings": dict(settings),
        "seed": seed,
    }


def save(result: Mapping[str, Any], out: Path | None = None, root: Path = RESULTS) -> Path:
    """Writes the file and returns its path. `out` overrides the place, and is written over where it exists."""
    path = out or _free_path(result, root)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write the result to {path}: {error}; give another place with --out") from error
    return path


def load(root: Path = RESULTS) -> list[Result]:
    """Every result under `root`, oldest first."""
    paths = sorted(path for suite in SUITES for path in root.glob(f"*/{suite}/*.json"))
    return sorted((_read(path) for path in paths), key=lambda result: (result.date, str(result.path)))


def latest(results: Sequence[Result], suite: str) -> list[Result]:
    """Of each machine and settings the newest result."""
    newest: dict[str, Result] = {}
    for result in results:
        if result.suite == suite:
            newest[json.dumps([result.machine, result.data["settings"]], sort_keys=True)] = result
    return list(newest.values())


def _free_path(result: Mapping[str, Any], root: Path) -> Path:
    """A second run on the same day and commit gets -2, and so on."""
    machine: Mapping[str, str] = result["machine"]
    folder = root / machine["slug"] / str(result["suite"])
    stem = f"{result['date'][:10]}-{machine['commit']}"
    names = (stem if number == 1 else f"{stem}-{number}" for number in count(1))
    return next(path for name in names if not (path := folder / f"{name}.json").exists())


def _read(path: Path) -> Result:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        for name, only in (("kernels", "auto"), ("activations", "float32")):  # from before there was a choice
            data["settings"].setdefault(name, only)
        result = Result(path, data)
        _ = (result.machine, result.suite, result.date)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not a result of `sooner bench` ({error!r}); remove it or repair it") from error
    return result
