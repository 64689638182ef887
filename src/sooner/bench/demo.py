"""What `make demo` printed, as the README shows it; `python -m benchmarks.demo` keeps it in results/."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sooner.bench.results import Result

BEGIN, END = "<!-- demo:begin -->", "<!-- demo:end -->"
FENCE = "````"  # answers may hold three
WHOLE = 4  # lines: a longer answer is counted, not shown


def readme_block(demo: Result) -> str:
    return "\n".join([BEGIN, FENCE, *shortened(demo.data["transcript"]), FENCE, END])


def shortened(transcript: Sequence[str]) -> Iterator[str]:
    """The lines of a terminal, where long answers are left out."""
    answer: list[str] | None = None  # its lines, while one is being read
    for line in transcript:
        if answer is not None and re.match(r"\d+ tokens \(", line):
            yield from answer if len(answer) <= WHOLE else [f"({len(answer)} lines, left out here)"]
            answer = None
        if answer is None:
            yield line
        else:
            answer.append(line)
        if line in ("[plain]", "[speculative]"):
            answer = []
