"""What `sooner plan` leaves for later starts: its costs, what drafts were worth, and of which machine and model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sooner.engine.calibrate import identity
from sooner.engine.planner import Planner
from sooner.errors import InputError
from sooner.models.decoder import Decoder
from sooner.plan.cost import CostTable
from sooner.plan.worth import Cell, Worth

Worths = dict[tuple[str, bool], Worth]


def contents(decoder: Decoder, planner: Planner, draft: Sequence[str]) -> dict[str, Any]:
    """The part of a plan that `PlanFile.read` takes, as JSON."""
    return {
        "of": identity(decoder),
        "draft": list(draft),
        "table": planner.costs.table.as_dict(),
        "worth": [
            {"drafter": name, "sampled": sampled, "cells": {key: asdict(cell) for key, cell in worth.cells.items()}}
            for (name, sampled), worth in planner.adviser.worths.items()
        ],
    }


@dataclass(frozen=True, slots=True)
class PlanFile:
    """draft: the drafters that were planned with. Nothing in it can change a token: only how much is drafted."""

    path: Path
    of: Mapping[str, Any]
    draft: tuple[str, ...]
    table: CostTable
    worths: Worths

    @classmethod
    def read(cls, path: Path) -> PlanFile:
        try:
            start = json.loads(path.read_text(encoding="utf-8"))["start"]
            worths = {(one["drafter"], bool(one["sampled"])): _worth(one) for one in start["worth"]}
            return cls(path, dict(start["of"]), tuple(start["draft"]), CostTable.from_dict(start["table"]), worths)
        except OSError as error:
            raise InputError(f"cannot read the plan {path}: {error}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path} is not a plan ({error!r}); write one with sooner plan --out {path}") from error

    def check(self, decoder: Decoder) -> None:
        """Raises InputError where it was measured with another machine, model, format or build: its costs are not
        those of this one."""
        here = identity(decoder)
        different = [f"{key} {self.of.get(key)!r}, here {here[key]!r}" for key in here if self.of.get(key) != here[key]]
        if different:
            raise InputError(f"{self.path} was planned with {'; '.join(different)}; run sooner plan again")


def _worth(data: Mapping[str, Any]) -> Worth:
    cells = {int(key): Cell(float(cell["accepted"]), float(cell["rejected"])) for key, cell in data["cells"].items()}
    return Worth(bool(data["sampled"]), cells)
