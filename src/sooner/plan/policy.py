"""Who may draft how much in a round, and why. Pure arithmetic over costs and chances; a grant carries its reason.

What a batch gains by a round is counted in tokens: those that its drafts are expected to add, less what the extra time
is worth at the pace of the moment (tokens a second). A row pays as long as its chance of being accepted, together with
all rows before it, exceeds the pace times its price. Rows of all sequences compete for the same pass, so the next one
goes to the likeliest token, whoever's it is, and the best prefix of that order is taken: the measured curve has steps,
so that a row may pay only together with the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from sooner.plan.cost import DrafterCost
from sooner.types import Speculation

MARGIN = 0.01  # tokens a sequence that a round must gain: below it the estimates are no better than noise
COSTLY = 0.02  # a drafter whose call costs more of a plain pass is weighed as a whole


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


@dataclass(slots=True)
class Option:
    """What one drafter offers one sequence. survival: of each token the chance that it and all before it are accepted.

    row_s, token_s: seconds that a drafted row and an accepted token cost beside their share of the products: attention,
    choosing. reading_s: what reading the ledger costs a drafter that is behind; rounds: in which that will be of use.
    """

    drafter: str
    cost: DrafterCost
    survival: Sequence[float]
    row_s: float = 0.0
    token_s: float = 0.0
    reading_s: float = 0.0
    rounds: float = 1.0

    @property
    def catch_up_s(self) -> float:
        """This round's share of reading."""
        return self.reading_s / self.rounds

    def gains(self, pace: float) -> list[float]:
        """Of each row: the tokens that it is expected to add, less the worth of the time that is its own."""
        share, row = 1.0 - pace * self.token_s, pace * self.row_s
        return [share * chance - row for chance in self.survival]


@dataclass(slots=True)
class Choice:
    """For each sequence an option or none and its rows; gain in tokens; extra_s: seconds beyond the plain round."""

    options: list[Option | None]
    rows: list[int]
    gain: float = 0.0
    extra_s: float = 0.0


Prices = Callable[[int], Sequence[float]]  # up to so many drafted rows: the seconds that each number adds to the pass


def floor_of(prices: Prices, pace: float) -> float:
    """What a row has to be worth in tokens, at the lowest price that it may have."""
    few = prices(8)
    return max(pace * min(few[m] / m for m in range(1, 9)), 0.0)


def choose(offers: Sequence[Sequence[Option]], prices: Prices, plain_s: float, pace: float) -> Choice:
    """The best options and rows for a batch. offers: of each sequence that may draft, one option a drafter.

    plain_s: the round without drafts. pace: committed tokens a second of this batch.
    """
    best = Choice([None] * len(offers), [0] * len(offers))
    if not any(offers):
        return best
    floor = floor_of(prices, pace)
    for allowed in _sets(offers, plain_s):
        options = [_best(options, allowed, pace, floor) for options in offers]
        choice = _fill(options, prices, pace, floor)
        if choice.gain > max(best.gain, MARGIN * len(offers)):
            best = choice
    return best


def _sets(offers: Sequence[Sequence[Option]], plain_s: float) -> Iterator[frozenset[str]]:
    """Cheap drafters may always play; of the costly ones every combination is tried."""
    costs = {option.drafter: option.cost.call for options in offers for option in options}
    costly = [name for name, call in costs.items() if call > COSTLY * plain_s]
    cheap = [name for name in costs if name not in costly]
    for count in range(len(costly) + 1):
        for some in combinations(costly, count):
            if cheap or some:
                yield frozenset([*cheap, *some])


def _best(options: Sequence[Option], allowed: frozenset[str], pace: float, floor: float) -> Option | None:
    """The option whose rows are worth most at the lowest price a row may have."""
    best, most = None, 0.0
    for option in options:
        if option.drafter in allowed:
            worth = sum(gain - floor for gain in option.gains(pace) if gain > floor) - pace * option.catch_up_s
            if worth > most:
                best, most = option, worth
    return best


def _fill(options: Sequence[Option | None], prices: Prices, pace: float, floor: float) -> Choice:
    """Rows in order of their gains, up to where the sum of gains less the price is largest."""
    order = [(gain, i) for i, option in enumerate(options) if option for gain in option.gains(pace) if gain > floor]
    order.sort(reverse=True)
    price = prices(len(order))
    rows, depth = [0] * len(options), dict[str, int]()
    gain, seconds, best, kept, extra = 0.0, 0.0, 0.0, 0, 0.0
    for m, (worth, i) in enumerate(order, 1):
        option = options[i]
        assert option is not None
        rows[i] += 1
        gain += worth
        seconds += _draft_seconds(option, rows[i], depth)
        spent = seconds + price[m]
        if gain - pace * spent > best:
            best, kept, extra = gain - pace * spent, m, spent
    rows = [0] * len(options)
    for _, i in order[:kept]:
        rows[i] += 1
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
