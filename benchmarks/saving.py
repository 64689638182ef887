"""How the benchmarks of this folder write what they measured under results/."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sooner.bench import machine, results
from sooner.kernels import make_kernels
from sooner.kernels.interface import Kernels

ROOT = Path("results")


def command() -> list[str]:
    """What was typed: the module by its name, since `sys.argv` has a file of this machine in its place."""
    spec = sys.modules["__main__"].__spec__
    return ["python", *(["-m", spec.name] if spec else sys.argv[:1]), *sys.argv[1:]]


def envelope(
    suite: str, settings: Mapping[str, Any], kernels: Kernels[Any] | None = None, seed: int = 1
) -> dict[str, Any]:
    """What a result begins with. kernels: those that were measured, where it was not the ones that there are."""
    facts = machine.facts(kernels or make_kernels("cpu", "auto", None, "auto"))
    return results.envelope(suite, facts, command(), settings, seed)


def save(
    suite: str,
    options: argparse.Namespace,
    figures: Mapping[str, Any],
    kernels: Kernels[Any] | None = None,
    seed: int = 1,
) -> None:
    """Writes the figures where --save was given."""
    if options.save:
        head = envelope(suite, settings_of(options), kernels, seed)
        print(results.save(head | dict(figures), None, ROOT), file=sys.stderr)


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """All options but --save; of paths among them the last part."""
    return {name: _without_place(value) for name, value in vars(options).items() if name != "save"}


def _without_place(value: Any) -> Any:
    is_place = isinstance(value, Path) or (isinstance(value, str) and Path(value).is_absolute())
    return Path(value).name if is_place else value
