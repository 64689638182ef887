"""Every example runs, and is short."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted(Path("examples").glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 41
    done = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": "."}
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
