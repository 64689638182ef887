"""`sooner convert`: a .bin checkpoint becomes safetensors, in a process of its own that loads weights only."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from sooner.errors import ModelError


def convert(
    folder: Annotated[
        Path, typer.Argument(help="a folder with pytorch_model.bin, its shards and their index, or medusa_lm_head.pt")
    ],
    to: Annotated[Path | None, typer.Option(help="another folder for the result [default: the same]")] = None,
) -> None:
    """Turn a pickled checkpoint into safetensors, which Sooner reads."""
    target = to or folder
    command = [sys.executable, "-m", "sooner.weights.convert", str(folder), str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise ModelError(f"{folder}: {lines[-1] if lines else f'the converter ended with code {done.returncode}'}")
    if target != folder:
        _copy_settings(folder, target)
    print(done.stdout, end="")


def _copy_settings(folder: Path, target: Path) -> None:
    """Configuration, tokenizer and chat template, which the weights need beside them."""
    from sooner.models.hub import WANTED

    for name in WANTED:
        if (folder / name).is_file() and "safetensors" not in name:
            shutil.copyfile(folder / name, target / name)
