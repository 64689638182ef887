"""Who may draft how much in a round, and why. Pure arithmetic over costs and chances; a grant carries its reason.

What a batch gains by a round is counted in tokens: those that its drafts are expected to add, less what the extra time
is worth at the pace of the moment (tokens a second). A row pays as long as its chance of being accepted, together with
all rows before it, exceeds the pace times its price. Rows of all sequences compete for the same pass, so the next one
goes to the likeliest token, whoever's it is, and the best prefix of that order is taken: the measured curve has steps,
so that a row may pay only together with the next.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from sooner.plan.cost import DrafterCost, Prices
from sooner.plan.worth import Forecast
from sooner.types import Speculation

MARGIN = 0.02  # tokens a sequence that a round must gain: below it the estimates are no better than noise
COSTLY = 0.02  # a drafter whose call costs more of a plain pass is weighed as a whole


@dataclass(frozen=True, slots=True)
class Grant:
    """`drafter` proposes at most `tokens`; an empty name and 0 are plain decoding."""

    drafter: str
    tokens: int
    reason: str


PLAIN = Grant("", 0, "no drafter was asked for")


def fixed(speculation: Speculation, remaining: int) -> Grant:
    """The request's own first drafter and length, as far as the request can use it.

    remaining: tokens that the request may still commit. A round commits one token more than it accepts, so more than
    remaining - 1 drafted tokens could never be used.
    """
    if not speculation.drafters:
        return PLAIN
    tokens = min(speculation.longest, remaining - 1)
    if tokens < 1:
        return Grant("", 0, f"{remaining} token to go" if remaining == 1 else "draft_tokens is 0")
    return Grant(speculation.drafters[0], tokens, f"fixed length {speculation.draft_tokens}")


@dataclass(slots=True)
class Terms:
    """What a round's rows cost and its tokens are worth. plain_s: the round without drafts; pace: tokens a second that
    this batch commits; key_s: what each key adds to a row; handling_s: what drafting at all adds to the round; floor:
    what a row has to be worth in tokens, at the lowest price that it may have."""

    prices: Prices
    plain_s: float
    pace: float
    key_s: float = 0.0
    handling_s: float = 0.0
    row_s: float = field(init=False)  # that the first drafted row adds to the pass
    floor: float = field(init=False)

    def __post_init__(self) -> None:
        self.row_s = self.prices.up_to(1)[1]
        self.floor = max(self.pace * self.prices.least, 0.0)


@dataclass(slots=True)
class Option:
    """What one drafter offers one sequence.

    row_s, token_s: seconds that a drafted row and an accepted token cost beside their share of the products: attention,
    choosing. reading_s: what reading the ledger costs a drafter that is behind; rounds: in which that will be of use.

    Weighed, it has gains: of each row that can pay, the tokens that it is expected to add, less the worth of the time
    that is its own; they never rise. worth: of all these rows, at the lowest price that a row may have.
    """

    drafter: str
    cost: DrafterCost
    forecast: Forecast
    row_s: float = 0.0
    token_s: float = 0.0
    reading_s: float = 0.0
    rounds: float = 1.0
    gains: Sequence[float] = field(default=(), init=False)
    worth: float = field(default=0.0, init=False)

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

    def weigh(self, terms: Terms) -> None:
        """Settles `gains` and `worth`."""
        share, row, floor = 1.0 - terms.pace * self.token_s, terms.pace * self.row_s, terms.floor
        self.gains = [gain for chance in self.forecast.chances if (gain := share * chance - row) > floor]
        self.worth = sum(self.gains) - floor * len(self.gains) - terms.pace * self.catch_up_s


@dataclass(slots=True)
class Choice:
    """For each sequence an option or none and its rows; gain in tokens; extra_s: seconds beyond the plain round."""

    options: list[Option | None]
    rows: list[int]
    gain: float = 0.0
    extra_s: float = 0.0
    probing: bool = False


def choose(offers: Sequence[Sequence[Option]], terms: Terms) -> Choice:
    """The best options and rows for a batch. offers: of each sequence that may draft, one option a drafter."""
    best = Choice([None] * len(offers), [0] * len(offers))
    able = [_able(options, terms) if options else [] for options in offers]
    for barred in _barred(able, COSTLY * terms.plain_s) if any(able) else ():
        choice = _fill([_first(options, barred) for options in able], terms)
        if choice.gain > max(best.gain, MARGIN * len(offers)):
            best = choice
    return best


def _able(options: Sequence[Option], terms: Terms) -> list[Option]:
    """Those that can pay, the worthiest first."""
    for option in options:
        option.weigh(terms)
    able = [option for option in options if option.gains and option.worth > 0.0]
    if len(able) > 1:
        able.sort(key=lambda option: -option.worth)
    return able


def _barred(able: Sequence[Sequence[Option]], most_s: float) -> Iterable[Collection[str]]:
    """Sets of drafters that may not play: none of the cheap ones, and every combination of those with costly calls."""
    costly = {option.drafter for options in able for option in options if option.cost.call > most_s}
    return (some for count in range(len(costly) + 1) for some in combinations(sorted(costly), count))


def _first(options: Sequence[Option], barred: Collection[str]) -> Option | None:
    return next((option for option in options if option.drafter not in barred), None)


def _fill(options: list[Option | None], terms: Terms) -> Choice:
    """Rows in order of their gains, up to where the sum of gains less the price is largest."""
    order = [(gain, i) for i, option in enumerate(options) if option for gain in option.gains]
    order.sort(reverse=True)
    price = terms.prices.up_to(len(order))
    rows, depth = [0] * len(options), dict[str, int]()
    gain, seconds, best, kept, extra = 0.0, terms.handling_s, 0.0, 0, 0.0
    for m, (worth, i) in enumerate(order, 1):
        option = options[i]
        assert option is not None
        rows[i] += 1
        gain += worth
        seconds += _draft_seconds(option, rows[i], depth)
        spent = seconds + price[m]
        if gain - terms.pace * spent > best:
            best, kept, extra = gain - terms.pace * spent, m, spent
    for _, i in order[kept:]:
        rows[i] -= 1
    return Choice([option if count else None for option, count in zip(options, rows)], rows, best, extra)


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
