"""What passes and drafts cost in seconds: a table that was measured once, or a prior, corrected by live rounds.

Everything here is arithmetic; `engine/calibrate.py` measures and stores the tables.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from math import exp, log
from typing import Any

KNOTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512)  # few rows have steps: tiles
LONGEST = KNOTS[-1] + 1
FEW = 8  # drafted rows among which the lowest price of one is looked for

# Roofline of a machine that nobody has measured, a thread: only the ratio of the two shapes decisions.
PRIOR_READ_GBS, PRIOR_GFLOPS, PRIOR_OVERHEAD_S = 10.0, 50.0, 5e-4

CLIP = 0.25  # the most that one round may tell, as a logarithm: a page fault is no news
SPEED_GAIN, SHAPE_GAIN = 0.1, 0.04
WAKING = 6.0  # asks that a round with any costs beside them: the first finds nothing of planning in the caches
COLDER = 1.6  # of the time of asking, with what the rest of the round loses by it: its memory has left the caches
HANDLING = 2.0  # asks that a draft costs beside proposing and verifying it: checked, judged, recorded
STALE = 0.3  # a shape that live rounds contradict by more, as a logarithm
SETTLED = 40  # rounds after which a correction is believed
NOISY = 0.2  # spread of the samples behind a table, over their median


@dataclass(frozen=True, slots=True)
class DrafterCost:
    """Seconds of one proposal: `call` for one token of one sequence, `step` for each further token, `sequence` for each
    further sequence, `catch_up` for each ledger token that the drafter has not read."""

    call: float
    step: float = 0.0
    sequence: float = 0.0
    catch_up: float = 0.0

    def seconds(self, sequences: int, depth: int, unread: int) -> float:
        return self.call + self.step * (depth - 1) + self.sequence * (sequences - 1) * depth + self.catch_up * unread

    def scaled(self, by: float) -> DrafterCost:
        return DrafterCost(self.call * by, self.step * by, self.sequence * by, self.catch_up * by)


@dataclass(frozen=True, slots=True)
class CostTable:
    """Seconds of a target pass by rows, all of them with logits and no keys; what keys add; and drafters by name.

    head: the head's share of the products, which rows without logits do not pay. key: what each key of a sequence adds,
    however many rows see it; row_key: what it adds to each row. spread: of the samples behind the table, over their
    median. measured: False for a prior.
    """

    rows: tuple[int, ...]
    seconds: tuple[float, ...]
    head: float
    key: float = 0.0
    row_key: float = 0.0
    drafters: Mapping[str, DrafterCost] = field(default_factory=dict)
    spread: float = 0.0
    measured: bool = True

    @property
    def noisy(self) -> bool:
        return self.spread > NOISY

    def products(self, rows: float) -> float:
        """Seconds of the products of that many rows: linear between the measured ones, and beyond them."""
        if rows <= 0:
            return 0.0
        if len(self.rows) == 1 or rows <= self.rows[0]:
            return self.seconds[0]
        i = min(bisect_right(self.rows, rows), len(self.rows) - 1)
        low, high = self.rows[i - 1], self.rows[i]
        slope = (self.seconds[i] - self.seconds[i - 1]) / (high - low)
        return self.seconds[i - 1] + slope * (rows - low)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CostTable:
        drafters = {name: DrafterCost(**cost) for name, cost in data["drafters"].items()}
        return cls(**{**data, "rows": tuple(data["rows"]), "seconds": tuple(data["seconds"]), "drafters": drafters})


def roofline(weight_bytes: int, multiply_adds: int, head: float, threads: int) -> CostTable:
    """A prior from sizes alone. A pass reads all weights once and does multiply_adds a row, whichever takes longer;
    near the ridge both count (their fourth powers add up). Source: Williams et al. 2009, with a smooth ridge."""
    reading = weight_bytes / (PRIOR_READ_GBS * 1e9 * threads)
    row = 2 * multiply_adds / (PRIOR_GFLOPS * 1e9 * threads)
    seconds = tuple(PRIOR_OVERHEAD_S + (reading**4 + (rows * row) ** 4) ** 0.25 for rows in KNOTS)
    return CostTable(KNOTS, seconds, head, measured=False)


@dataclass(slots=True)
class Level:
    """A robust running level of positive numbers: its logarithm moves by a clipped share of what is new."""

    value: float = 0.0
    count: int = 0

    def learn(self, x: float, gain: float = 0.05) -> None:
        if x <= 0.0:
            return
        if self.count == 0:
            self.value = x
        news = max(-2 * CLIP, min(2 * CLIP, log(x / self.value)))
        self.value *= exp(max(gain, 1.0 / (self.count + 1)) * news)
        self.count += 1


class Prices:
    """What further rows with logits add to the products of one pass. added: the seconds of 0, 1, ... so many of them.

    least: the lowest price of a row among the first few.
    """

    def __init__(self, added: Callable[[int], Sequence[float]]) -> None:
        self._added, self._known = added, added(FEW)
        self.least = min(self._known[m] / m for m in range(1, FEW + 1))

    def up_to(self, most: int) -> Sequence[float]:
        """For at least so many rows."""
        if most >= len(self._known):
            self._known = self._added(2 * most)
        return self._known


class LiveCosts:
    """A table as live rounds correct it: the machine's speed of the moment, quickly, and the curve's shape, slowly."""

    def __init__(self, table: CostTable) -> None:
        self.table = table
        self.speed = 0.0  # logarithm of measured over table, of all passes
        self.shape = [0.0] * len(KNOTS)  # the same at each knot, beyond `speed`
        self.counts = [0] * len(KNOTS)
        self.passes = 0
        self.choosing: dict[str, Level] = {}  # seconds to choose one token, by the way of choosing
        self.other = Level()  # seconds a sequence and round after choosing
        self.planning = Level()  # seconds to plan a round in which no drafter is asked, and to learn from it
        self.asking = Level()  # beyond that, for one answer of a drafter and its weighing; see WAKING, COLDER
        self.drafting: dict[str, Level] = {}  # measured over table, by drafter; plain seconds of one not in the table
        self.drafters = dict(table.drafters)  # as the proposals of late have corrected them
        self._base = [table.products(rows) for rows in range(LONGEST)]
        self._curve = list(self._base)  # with the shape's correction
        self._place = [_place(rows) for rows in range(LONGEST)]
        self._prices = dict[tuple[int, int], Prices]()  # by rows and logits, until a round corrects the curve
        self._told = False

    def products(self, rows: int) -> float:
        if rows >= LONGEST:
            return self.table.products(rows) * exp(self.speed + self.shape[-1])
        return self._curve[rows] * exp(self.speed)

    def pass_seconds(self, rows: int, logits: int, keys: int, row_keys: int) -> float:
        """A pass over `rows` rows, `logits` of them with logits. keys: summed over sequences; row_keys: over rows."""
        head, table = self.table.head, self.table
        attention = (table.key * keys + table.row_key * row_keys) * exp(self.speed)
        return (1.0 - head) * self.products(rows) + head * self.products(logits) + attention

    def added_seconds(self, rows: int, logits: int, most: int) -> list[float]:
        """What 0, 1, ... `most` further rows with logits add to the products of such a pass."""
        layers, head = (1.0 - self.table.head), self.table.head
        before = layers * self.products(rows) + head * self.products(logits)
        if rows + most >= LONGEST:
            return [
                layers * self.products(rows + m) + head * self.products(logits + m) - before for m in range(most + 1)
            ]
        layers, head = layers * exp(self.speed), head * exp(self.speed)
        curves = zip(self._curve[rows : rows + most + 1], self._curve[logits : logits + most + 1])
        return [layers * a + head * b - before for a, b in curves]

    def prices(self, rows: int, logits: int) -> Prices:
        """Of rows beyond those of such a pass."""
        known = self._prices.get((rows, logits))
        return known or self._prices.setdefault((rows, logits), Prices(partial(self.added_seconds, rows, logits)))

    @property
    def row_key_seconds(self) -> float:
        return self.table.row_key * exp(self.speed)

    def choosing_seconds(self, kind: str) -> float:
        level = self.choosing.get(kind)
        return level.value if level else 0.0

    def asking_seconds(self, asks: int) -> float:
        """What a round takes longer in which drafters give so many answers: it is planned, and they are weighed."""
        return self.planning.value + (WAKING + asks) * self.asking.value if asks else 0.0

    @property
    def handling_seconds(self) -> float:
        """What a round that drafts costs beside its proposals, its rows and its tokens."""
        return HANDLING * self.asking.value

    def learn_planning(self, asks: int, seconds: float) -> None:
        """Of a round with so many answers."""
        if asks:
            self.asking.learn(COLDER * (seconds - self.planning.value) / (WAKING + asks))
        else:
            self.planning.learn(seconds)

    def drafter(self, name: str) -> DrafterCost:
        """As measured, at its speed of the moment; of one that was not measured, what its proposals have told."""
        return self.drafters.get(name, FREE)

    def learn_draft(self, name: str, sequences: int, depth: int, unread: int, seconds: float) -> None:
        """One proposal to so many sequences, the longest of `depth` tokens, after reading `unread` tokens."""
        cost, level = self.table.drafters.get(name, UNIT), self.drafting.setdefault(name, Level())
        level.learn(seconds / cost.seconds(sequences, depth, unread))
        self.drafters[name] = cost.scaled(level.value)

    def learn_choosing(self, kind: str, seconds: float) -> None:
        self.choosing.setdefault(kind, Level()).learn(seconds)

    def learn_pass(self, predicted: float, seconds: float, rows: int) -> None:
        """One pass, and what `pass_seconds` said before. Without a good table the first rounds count for more."""
        if not 0 < rows < LONGEST or seconds <= 0.0:  # a coarse clock may not have moved
            return
        i, weight = self._place[rows]
        news = max(-CLIP, min(CLIP, log(seconds / predicted)))
        self.speed += max(SPEED_GAIN, 1.0 / (self.passes + 2)) * news
        self.passes += 1
        self._prices.clear()
        for knot, share in ((i, 1.0 - weight), (i + 1, weight)):
            if share > 0.0:
                first = 0.0 if self.table.measured and not self.table.noisy else 1.0 / (self.counts[knot] + 2)
                self.shape[knot] += max(SHAPE_GAIN, first) * share * news
                self.counts[knot] += 1
        for near in range(KNOTS[max(i - 1, 0)], KNOTS[min(i + 2, len(KNOTS) - 1)] + 1):
            at, part = self._place[near]
            self._curve[near] = self._base[near] * exp((1.0 - part) * self.shape[at] + part * self.shape[at + 1])

    @property
    def stale(self) -> bool:
        """Whether live rounds contradict the shape of a measured table."""
        known = [shape for shape, count in zip(self.shape, self.counts) if count >= SETTLED]
        return self.table.measured and len(known) > 1 and max(known) - min(known) > STALE

    def newly_stale(self) -> bool:
        """True once, when the table has become stale."""
        news = not self._told and self.stale
        self._told = self._told or news
        return news


FREE, UNIT = DrafterCost(0.0), DrafterCost(1.0, 1.0, 1.0, 1.0)


def _place(rows: int) -> tuple[int, float]:
    """Between which knots a number of rows lies, and how far."""
    i = min(max(bisect_right(KNOTS, rows) - 1, 0), len(KNOTS) - 2)
    return i, min(max((rows - KNOTS[i]) / (KNOTS[i + 1] - KNOTS[i]), 0.0), 1.0)


def not_falling(values: Sequence[float]) -> list[float]:
    """The closest sequence that never falls, in least squares (pool adjacent violators): more rows cost no less."""
    pools: list[tuple[float, int]] = []
    for value in values:
        pools.append((value, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, m), (b, n) = pools[-2:]
            pools[-2:] = [((a * m + b * n) / (m + n), m + n)]
    return [mean for mean, count in pools for _ in range(count)]
