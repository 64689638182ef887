"""Times the lookup drafters: a proposal after an ordinary commit, and the first reading of a prompt.

    python benchmarks/drafters.py > results/<machine>/drafters/<date>-<commit>.json

The ledger is Python's own standard library, in SmolLM2's tokens. Prints one JSON document: for each drafter and length
of history in tokens, `propose_us` (with the catching up over COMMITTED new tokens: the median and the highest of ROUNDS
consecutive rounds, each the least of REPEATS) and `catch_up_us` a token of the prompt (the least of REPEATS).
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from sooner.draft.load import LOOKUPS, load_lookup
from sooner.draft.protocol import Ask
from sooner.models.checkpoint import open_checkpoint
from sooner.models.locate import find_model
from sooner.types import Ledger, Request, SamplingParams

HISTORIES = (1000, 8000)
COMMITTED = 5  # tokens a round
LIMIT = 8
ROUNDS = 200
REPEATS = 20


def tokens(count: int) -> list[int]:
    tokenizer = open_checkpoint(find_model("smollm2")).tokenizer
    found: list[int] = []
    for name in ("textwrap.py", "shlex.py", "heapq.py", "csv.py", "copy.py", "bisect.py"):
        found += tokenizer.encode((Path(os.__file__).parent / name).read_text(), add_special=False)
    if len(found) < count:
        raise SystemExit(f"the source files have {len(found)} tokens, {count} are needed; add a file")
    return found[:count]


def play(name: str, text: Sequence[int], history: int) -> tuple[float, list[float]]:
    """Microseconds a token for the first reading of `history` tokens, and microseconds of each proposal after it."""
    drafter = load_lookup(name)
    request = Request("timing", tuple(text[:history]), SamplingParams(), seed=0, seeded=True)
    ask = Ask(0, request, Ledger(list(text[:history]), history), LIMIT, "match")
    times = []
    for end in range(history, history + (ROUNDS + 1) * COMMITTED, COMMITTED):
        ask.ledger.tokens += text[len(ask.ledger) : end]
        start = time.perf_counter()
        drafter.propose([ask])
        times.append((time.perf_counter() - start) * 1e6)
    return times[0] / history, times[1:]


def measure(name: str, text: Sequence[int], history: int) -> dict[str, float]:
    plays = [play(name, text, history) for _ in range(REPEATS)]
    least = [min(times) for times in zip(*(times for _, times in plays))]
    return {
        "propose_us": round(statistics.median(least), 1),
        "propose_us_highest": round(max(least), 1),
        "catch_up_us": round(min(first for first, _ in plays), 2),
    }


def main() -> None:
    text = tokens(HISTORIES[-1] + ROUNDS * COMMITTED)
    report = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "committed": COMMITTED,
        "limit": LIMIT,
        "drafters": {name: {n: measure(name, text, n) for n in HISTORIES} for name in LOOKUPS},
    }
    json.dump(report, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
