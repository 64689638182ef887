"""Runs what `make demo` runs, and keeps what it printed for the README: `python -m benchmarks.demo`."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from sooner.bench import machine, results
from sooner.kernels import make_kernels

RECIPE = re.compile(r"^demo:.*\n\t@\$\(BIN\)/sooner ((?:.*\\\n)*.*)\n", re.MULTILINE)


def arguments(makefile: str) -> list[str]:
    """Of the command in the Makefile's recipe."""
    found = RECIPE.search(makefile)
    if not found:
        raise SystemExit(
            "the Makefile's demo is no longer one call of $(BIN)/sooner; bring benchmarks/demo.py up to date"
        )
    return shlex.split(found[1].replace("\\\n", " "))


def main() -> None:
    asked = arguments(Path("Makefile").read_text(encoding="utf-8"))
    command = [sys.executable, "-m", "sooner.cli.main", *asked]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    print(done.stdout)
    facts = machine.facts(make_kernels("cpu", "auto", None, "auto"))
    head = results.envelope("demo", facts, ["make", "demo"], {"arguments": shlex.join(asked)}, 0)
    print(results.save(head | {"transcript": done.stdout.splitlines()}), file=sys.stderr)


if __name__ == "__main__":
    main()
