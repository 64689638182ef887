"""What the parts of `sooner certify` have in common: jobs that yield checks, and the verdict over them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was tested. figures: every number behind `text`, fit for JSON."""

    name: str
    ok: bool
    text: str
    figures: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return {"name": self.name, "ok": self.ok, "text": self.text, **self.figures}


@dataclass(frozen=True, slots=True)
class Job:
    """Work that is worth a step of the progress bar."""

    name: str
    run: Callable[[], Sequence[Check]]


@dataclass(frozen=True, slots=True)
class Part:
    """question: what the part answers, for people."""

    name: str
    question: str
    jobs: Sequence[Job]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A part after it has run."""

    part: Part
    checks: Sequence[Check]
    seconds: float

    @property
    def failed(self) -> list[Check]:
        return [check for check in self.checks if not check.ok]

    @property
    def ok(self) -> bool:
        return not self.failed

    @property
    def tests(self) -> int:
        """How many of the checks could fail by chance."""
        return sum("p_value" in check.figures for check in self.checks)

    def __str__(self) -> str:
        found = f"{len(self.checks)} checks" if self.ok else f"{len(self.failed)} of {len(self.checks)} checks failed"
        return f"{self.part.name}: {'pass' if self.ok else 'FAIL'}, {found}, {self.seconds:.1f} s"

    def as_dict(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "question": self.part.question,
            "seconds": round(self.seconds, 2),
            "checks": [check.as_dict() for check in self.checks],
        }


Tick = Callable[[str], None]


def run_part(part: Part, tick: Tick) -> Outcome:
    """tick is called with each job's name before it starts."""
    start = time.perf_counter()
    checks: list[Check] = []
    for job in part.jobs:
        tick(job.name)
        checks += job.run()
    return Outcome(part, checks, time.perf_counter() - start)
