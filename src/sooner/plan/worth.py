"""What a drafter's next tokens are worth: the chance of each to be accepted, learned from verdicts, with forgetting.

Three levels. What a drafter says of itself (`estimate`: match length, counts, confidence), or the position where it
says nothing, picks a cell; a cell starts from the drafter's own word and follows what was accepted in it. A sequence
that does better or worse than its cells multiplies their odds. All of it is known before a token is drawn, so a length
chosen by it keeps `rejection` and `block` exact.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import repeat

EDGES = (0.25, 0.36, 0.52, 0.62, 0.7, 0.78, 0.86, 0.93, 0.97)  # of a drafter's own estimates: bins of cells
PLACES = 8  # cells by position, for drafters that do not estimate themselves
HOPE, HOPE_PRIOR = 0.5, 4.0  # a token's chance where the drafter does not say; tokens that this guess counts for
SAMPLED_DOUBT = 1.5  # the power to which an estimate is raised for requests that sample: they copy less faithfully
SILENCE = repeat(None)
WORD_PRIOR = 20.0  # tokens that a drafter's word counts for
CELL_MEMORY = 300.0  # tokens after which a verdict is forgotten
OWN_PRIOR, OWN_MEMORY = 20.0, 60.0


@dataclass(slots=True)
class Cell:
    """Accepted and rejected tokens, older ones counting less, on top of a prior."""

    accepted: float
    rejected: float

    @property
    def chance(self) -> float:
        return self.accepted / (self.accepted + self.rejected)

    def learn(self, accepted: bool) -> None:
        if self.accepted + self.rejected > CELL_MEMORY:
            keep = 1.0 - 1.0 / CELL_MEMORY
            self.accepted *= keep
            self.rejected *= keep
        if accepted:
            self.accepted += 1.0
        else:
            self.rejected += 1.0


@dataclass(slots=True)
class Own:
    """One sequence's verdicts on one drafter, beside what its cells expected of the same tokens.

    odds: by how much the cells' odds are to be multiplied.
    """

    accepted: float = OWN_PRIOR
    rejected: float = OWN_PRIOR
    hoped: float = OWN_PRIOR
    feared: float = OWN_PRIOR
    odds: float = 1.0

    def learn(self, accepted: bool, chance: float) -> None:
        keep = 1.0 - 1.0 / OWN_MEMORY
        self.accepted = OWN_PRIOR + (self.accepted - OWN_PRIOR) * keep + accepted
        self.rejected = OWN_PRIOR + (self.rejected - OWN_PRIOR) * keep + (not accepted)
        self.hoped = OWN_PRIOR + (self.hoped - OWN_PRIOR) * keep + chance
        self.feared = OWN_PRIOR + (self.feared - OWN_PRIOR) * keep + 1.0 - chance
        self.odds = self.accepted * self.feared / (self.rejected * self.hoped)


@dataclass(slots=True)
class Forecast:
    """Of each of a draft's tokens the chance that it and all before it are accepted, and the cell behind it."""

    chances: list[float]
    cells: list[Cell]
    own: Own

    def learn(self, drafted: int, accepted: int) -> None:
        """The verdict on a draft that was forecast: its tokens up to the first that was rejected."""
        for i, cell in enumerate(self.cells[: min(drafted, accepted + 1)]):
            self.own.learn(i < accepted, cell.chance)
            cell.learn(i < accepted)


@dataclass(slots=True)
class Worth:
    """One drafter's cells under one kind of sampling; shared by all its sequences."""

    sampled: bool = False
    cells: dict[int, Cell] = field(default_factory=dict)

    def survival(self, own: Own, estimate: Iterable[float] | None, limit: int, least: float = 0.0) -> Forecast:
        """The next `limit` tokens at most, down to the first whose chance is below least.

        estimate: what the drafter says, None where it says nothing, empty where it has nothing to propose.
        """
        odds, cells, path, said = own.odds, self.cells, 1.0, 1.0
        forecast = Forecast([], [], own)
        for survives in SILENCE if estimate is None else estimate:
            if survives is None:
                key, hope, weight = min(len(forecast.cells), PLACES - 1), HOPE, HOPE_PRIOR
            else:
                hope, said = survives / said if said > 0.0 else 0.0, survives
                key, weight = bisect(EDGES, hope), WORD_PRIOR
            cell = cells.get(key) or self._new_cell(key, hope, weight)
            good = odds * cell.accepted
            path *= good / (good + cell.rejected)
            forecast.chances.append(path)
            forecast.cells.append(cell)
            if path < least or len(forecast.cells) == limit:
                break
        return forecast

    def _new_cell(self, key: int, hope: float, weight: float) -> Cell:
        chance = hope**SAMPLED_DOUBT if self.sampled else hope
        return self.cells.setdefault(key, Cell(weight * chance, weight * (1.0 - chance)))
