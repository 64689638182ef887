"""What a pass has to do, as the cost model counts it."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from sooner.engine.scheduler import Turn


@dataclass(frozen=True, slots=True)
class Load:
    """rows: of the pass; logits: those that choose; row_keys: the keys that rows see, summed; keys: of each turn."""

    rows: int
    logits: int
    row_keys: int
    keys: tuple[int, ...]

    @classmethod
    def of(cls, turns: Seq[Turn], drafted: Seq[int]) -> Load:
        """drafted: rows of each turn beside its tail."""
        rows = logits = row_keys = 0
        keys = []
        for turn, count in zip(turns, drafted):
            end = turn.sequence.table.length + turn.take
            keys.append(end)
            rows += turn.take + count
            logits += (turn.take if turn.scores_prompt else int(turn.completes)) + count
            row_keys += turn.take * (end - turn.take // 2) + count * end
        return cls(rows, logits, row_keys, tuple(keys))

    def grown(self, drafted: Seq[int]) -> Load:
        """With so many further rows of each turn."""
        more = sum(drafted)
        keys = sum(count * end for count, end in zip(drafted, self.keys))
        return Load(self.rows + more, self.logits + more, self.row_keys + keys, self.keys)
