"""How far loading is, on standard error and only for people: a terminal."""

from __future__ import annotations

import sys

WIDTH = 30


def loading(done: int, total: int) -> None:
    """Draws a bar over `done` of `total` bytes, and ends the line when all is done. For `LLM(progress=loading)`."""
    if not sys.stderr.isatty():
        return
    filled = WIDTH * done // total
    bar = "#" * filled + "." * (WIDTH - filled)
    end = "\n" if done == total else ""
    print(f"\r[{bar}] {done / 1e6:,.0f} of {total / 1e6:,.0f} MB", end=end, file=sys.stderr, flush=True)
