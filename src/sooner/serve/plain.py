"""What the same tokens would have cost without drafts: an estimate from the plain rounds that were seen."""

from __future__ import annotations

from collections.abc import Sequence

from sooner.engine.planner import PREFILL
from sooner.types import RoundRecord

WEIGHT = 0.1  # of a new observation


class PlainCost:
    """seconds: for all tokens of rounds so far. A plain round commits one token of each sequence.

    The cost of a plain step is remembered by its number of sequences; for a number that was never seen, the nearest
    smaller one is taken, else the nearest: small steps are cheaper, so the estimate errs against drafting.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._steps: dict[int, float] = {}

    def learn(self, records: Sequence[RoundRecord]) -> None:
        """One step's records."""
        rounds = [record for record in records if record.reason != PREFILL]
        if not rounds:
            return
        width = len(records)
        if len(rounds) == width and not any(record.draft for record in rounds):
            self._remember(width, sum(map(seconds, rounds)))
        self.seconds += sum(len(record.committed) for record in rounds) * self._step(width) / width

    def _remember(self, width: int, step_s: float) -> None:
        known = self._steps.get(width, step_s)
        self._steps[width] = known + WEIGHT * (step_s - known)

    def _step(self, width: int) -> float:
        """Seconds of a plain step; 0 as long as no plain round was seen."""
        nearest = min(self._steps, key=lambda known: (known > width, abs(known - width)), default=None)
        return 0.0 if nearest is None else self._steps[nearest]


def seconds(record: RoundRecord) -> float:
    return record.draft_s + record.target_s + record.verify_s + record.commit_s
