"""The verdict of a whole run: as a line, as JSON, and as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import jinja2

import sooner
from sooner.certify.checks import Outcome
from sooner.certify.page import PAGE
from sooner.certify.statistics import LEVEL, POWER


@dataclass(frozen=True, slots=True)
class Report:
    """settings: what was certified and how, for people."""

    settings: Mapping[str, Any]
    outcomes: Sequence[Outcome]

    @property
    def ok(self) -> bool:
        return all(outcome.ok for outcome in self.outcomes)

    @property
    def tests(self) -> int:
        """How many checks could fail by chance."""
        return sum(outcome.tests for outcome in self.outcomes)

    @property
    def false_alarms(self) -> float:
        """The most that a run over an exact engine fails with, by chance (Bonferroni over all its tests)."""
        return LEVEL * self.tests

    @property
    def line(self) -> str:
        checks = sum(len(outcome.checks) for outcome in self.outcomes)
        seconds = sum(outcome.seconds for outcome in self.outcomes)
        if self.ok:
            chance = f", false alarms below {self.false_alarms:.1g}" if self.tests else ""
            return f"pass: {checks} checks in {seconds:.0f} s{chance}"
        failed = [(outcome.part.name, check) for outcome in self.outcomes for check in outcome.failed]
        part, first = failed[0]
        return f"FAIL: {len(failed)} of {checks} checks, the first in {part}: {first.name}: {first.text}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "verdict": "pass" if self.ok else "fail",
            "line": self.line,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "sooner": sooner.__version__,
            "settings": dict(self.settings),
            "tests": self.tests,
            "level": LEVEL,
            "power": POWER,
            "false_alarm_rate": self.false_alarms,
            "parts": {outcome.part.name: outcome.as_dict() for outcome in self.outcomes},
        }

    def as_html(self) -> str:
        environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
        return environment.from_string(PAGE).render(report=self.as_dict(), ok=self.ok)
