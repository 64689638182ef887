"""Who may draft how much in a round, and why. Pure arithmetic over costs and chances; a grant carries its reason.

What a batch gains by a round is counted in tokens: those that its drafts are expected to add, less what the extra time
is worth at the pace of the moment (tokens a second). A row pays as long as its chance of being accepted, together with
all rows before it, exceeds the pace times its price. Rows of all sequences compete for the same pass, so the next one
goes to the likeliest token, whoever's it is, and the best prefix of that order is taken: the measured curve has steps,
so that a row may pay only together with the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

from sooner.plan.cost import DrafterCost
from sooner.plan.worth import Forecast
from sooner.types import Speculation

MARGIN = 0.01  # tokens a sequence that a round must gain: below it the estimates are no better than noise
COSTLY = 0.02  # a drafter whose call costs more of a plain pass is weighed as a whole
FEW = 8  # drafted rows among which the lowest price of one is looked for


@dataclass(frozen=True, slots=True)
class Grant:
    """`drafter` proposes at most `tokens`; an empty name and 0 are plain decoding."""

    drafter: str
    tokens: int
    reason: str


def fixed(speculation: Speculation, remaining: int) -> Grant:
    """The request's own first drafter and length, as far as the request can use it.

    remaining: tokens that the request may still commit. A round commits one token more than it accepts, so more than
    remaining - 1 drafted tokens could never be used.
    """
    if not speculation.drafters:
        return Grant("", 0, "no drafter was asked for")
    tokens = min(speculation.longest, remaining - 1)
    if tokens < 1:
        return Grant("", 0, f"{remaining} token to go" if remaining == 1 else "draft_tokens is 0")
    return Grant(speculation.drafters[0], tokens, f"fixed length {speculation.draft_tokens}")


Prices = Callable[[int], Sequence[float]]  # up to so many drafted rows: the seconds that each number adds to the pass


@dataclass(slots=True)
class Terms:
    """What a round's rows cost and its tokens are worth. plain_s: the round without drafts; pace: tokens a second that
    this batch commits; key_s: what each key adds to a row; floor: what a row has to be worth in tokens, at the lowest
    price that it may have."""

    prices: Prices
    plain_s: float
    pace: float
    key_s: float = 0.0
    row_s: float = field(init=False)  # that the first drafted row adds to the pass
    floor: float = field(init=False)

    def __post_init__(self) -> None:
        few = self.prices(FEW)
        self.row_s = few[1]
        self.floor = max(self.pace * min(few[m] / m for m in range(1, FEW + 1)), 0.0)


@dataclass(slots=True)
class Option:
    """What one drafter offers one sequence.

    row_s, token_s: seconds that a drafted row and an accepted token cost beside their share of the products: attention,
    choosing. reading_s: what reading the ledger costs a drafter that is behind; rounds: in which that will be of use.
    """

    drafter: str
    cost: DrafterCost
    forecast: Forecast
    row_s: float = 0.0
    token_s: float = 0.0
    reading_s: float = 0.0
    rounds: float = 1.0

    @property
    def survival(self) -> Sequence[float]:
        """Of each token the chance that it and all before it are accepted."""
        return self.forecast.chances

    def must_read(self, unread: int, rounds: float) -> None:
        """The drafter would have to read so many ledger tokens first, which will be of use for so many rounds."""
        self.reading_s, self.rounds = self.cost.catch_up * unread, rounds

    @property
    def catch_up_s(self) -> float:
        """This round's share of reading."""
        return self.reading_s / self.rounds

    def gains(self, terms: Terms) -> list[float]:
        """Of each row that can pay: the tokens that it is expected to add, less the worth of the time that is its own.
        They never rise."""
        share, row, floor = 1.0 - terms.pace * self.token_s, terms.pace * self.row_s, terms.floor
        return [gain for chance in self.forecast.chances if (gain := share * chance - row) > floor]

    def worth(self, gains: Sequence[float], terms: Terms) -> float:
        """Of rows with these gains, at the lowest price that a row may have."""
        return sum(gains) - terms.floor * len(gains) - terms.pace * self.catch_up_s


class Bid(NamedTuple):
    """An option that can pay, the gains of its rows, and what they are worth at the lowest price of a row."""

    worth: float
    option: Option
    gains: Sequence[float]


@dataclass(slots=True)
class Choice:
    """For each sequence an option or none and its rows; gain in tokens; extra_s: seconds beyond the plain round."""

    options: list[Option | None]
    rows: list[int]
    gain: float = 0.0
    extra_s: float = 0.0
    probing: bool = False

    @property
    def drafts(self) -> bool:
        return any(self.rows)


def choose(offers: Sequence[Sequence[Option]], terms: Terms) -> Choice:
    """The best options and rows for a batch. offers: of each sequence that may draft, one option a drafter."""
    best = Choice([None] * len(offers), [0] * len(offers))
    bids = [_bids(options, terms) if options else [] for options in offers]
    for allowed in _sets(bids, terms.plain_s):
        choice = _fill([_best(mine, allowed) if mine else None for mine in bids], terms)
        if choice.gain > max(best.gain, MARGIN * len(offers)):
            best = choice
    return best


def _bids(options: Sequence[Option], terms: Terms) -> list[Bid]:
    """The options that can pay, the worthiest first."""
    bids = []
    for option in options:
        gains = option.gains(terms)
        if gains and (worth := option.worth(gains, terms)) > 0.0:
            bids.append(Bid(worth, option, gains))
    if len(bids) > 1:
        bids.sort(key=lambda bid: -bid.worth)
    return bids


def _sets(bids: Sequence[Sequence[Bid]], plain_s: float) -> Iterator[frozenset[str]]:
    """Cheap drafters may always play; of the costly ones every combination is tried."""
    costs = {bid.option.drafter: bid.option.cost.call for mine in bids for bid in mine}
    costly = [name for name, call in costs.items() if call > COSTLY * plain_s]
    cheap = [name for name in costs if name not in costly]
    for count in range(len(costly) + 1):
        for some in combinations(costly, count):
            if cheap or some:
                yield frozenset([*cheap, *some])


def _best(bids: Sequence[Bid], allowed: frozenset[str]) -> Bid | None:
    return next((bid for bid in bids if bid.option.drafter in allowed), None)


def _fill(bids: Sequence[Bid | None], terms: Terms) -> Choice:
    """Rows in order of their gains, up to where the sum of gains less the price is largest."""
    order = [(gain, i) for i, bid in enumerate(bids) if bid for gain in bid.gains]
    order.sort(reverse=True)
    price = terms.prices(len(order))
    rows, depth = [0] * len(bids), dict[str, int]()
    gain, seconds, best, kept, extra = 0.0, 0.0, 0.0, 0, 0.0
    for m, (worth, i) in enumerate(order, 1):
        bid = bids[i]
        assert bid is not None
        rows[i] += 1
        gain += worth
        seconds += _draft_seconds(bid.option, rows[i], depth)
        spent = seconds + price[m]
        if gain - terms.pace * spent > best:
            best, kept, extra = gain - terms.pace * spent, m, spent
    rows = [0] * len(bids)
    for _, i in order[:kept]:
        rows[i] += 1
    return Choice([bid.option if bid and count else None for bid, count in zip(bids, rows)], rows, best, extra)


def _draft_seconds(option: Option, row: int, depth: dict[str, int]) -> float:
    """What the next row of an option adds to the time of drafting. depth: the drafter's longest draft so far."""
    name, cost = option.drafter, option.cost
    seconds = option.catch_up_s if row == 1 else 0.0
    if name not in depth:
        depth[name] = 1
        return seconds + cost.call
    if row > depth[name]:
        depth[name] = row
        return seconds + cost.step
    return seconds + cost.sequence
