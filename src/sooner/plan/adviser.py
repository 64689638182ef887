"""The policy from round to round: what it knows, what it advises, and what it learns from what came out.

`engine/planner.py` shows it live rounds and `plan/replay.py` recorded ones, so that what is predicted is what will be
done. Nothing here looks at a clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sooner.plan.cost import LiveCosts
from sooner.plan.guard import ASK_EVERY, START_S, Budget, Guard, Pace, Use
from sooner.plan.policy import MARGIN, Choice, Option, Terms, choose
from sooner.plan.worth import Own, Worth

AHEAD = 32  # tokens that a sequence is expected to go on for at least; beyond them, as many as it has come


@dataclass(slots=True)
class Seat:
    """One drafter of one sequence: what does not change as long as it lives, and its own record.

    kind: the way of choosing (`LiveCosts.choosing`). ratio: whether a row costs its choosing even where it is rejected.
    """

    name: str
    kind: str
    ratio: bool
    worth: Worth
    use: Use
    own: Own = field(default_factory=Own)


def rounds_ahead(remaining: int, done: int) -> float:
    """In which a drafter that catches up now will be of use. remaining: tokens that a sequence may still commit."""
    return max(min(remaining, max(AHEAD, done)) / 2, 1.0)


class Adviser:
    """What one engine's policy knows. names: of its drafters."""

    def __init__(self, costs: LiveCosts, names: Sequence[str]) -> None:
        self.costs = costs
        self.worths: dict[tuple[str, bool], Worth] = {}
        self.guard, self.pace = Guard(), Pace()
        self.uses = {name: Use() for name in names}
        self.all_asked = False  # whether this round asks those too that rest otherwise
        self._rounds = 0
        self._budgets = {name: Budget(START_S / len(names)) for name in names}
        self._earned = 0.0  # seconds of decoding of which the budgets have not had their share

    def worth(self, name: str, sampled: bool) -> Worth:
        if (name, sampled) not in self.worths:
            self.worths[name, sampled] = Worth(sampled)
        return self.worths[name, sampled]

    def begin(self, sequences: int, decoding_s: float) -> float:
        """Begins a round; returns its pace, and settles who rests in it. sequences: that decode in it; decoding_s: what
        they alone take without drafts."""
        pace = self.pace.value * sequences / decoding_s
        self._rounds += 1
        self.all_asked = self._rounds % ASK_EVERY == 0
        needed = 0.0 if self.all_asked else pace * self.costs.asking.value
        for use in self.uses.values():
            use.rests = use.gain < needed
        return pace

    def pays_to_ask(self, uses: Sequence[Use], pace: float) -> bool:
        """Whether answers of drafters that do not rest are worth a round's time at its pace. uses: one an answer."""
        return self.all_asked or sum(use.gain for use in uses) > pace * self.costs.asking_seconds(len(uses))

    def skip(self) -> int:
        """Where everybody rests: counts the rounds until all are asked again as begun; returns how many they are."""
        left = ASK_EVERY - 1 - self._rounds % ASK_EVERY
        self._rounds += left
        return left

    def terms(self, rows: int, logits: int, plain_s: float, pace: float) -> Terms:
        """Of a round of so many rows without drafts."""
        costs = self.costs
        return Terms(costs.prices(rows, logits), plain_s, pace, costs.row_key_seconds, costs.handling_seconds)

    def option(
        self, terms: Terms, seat: Seat, estimate: Iterable[float] | None, limit: int, keys: int
    ) -> Option | None:
        """What a drafter could do for a sequence with so many keys: at most `limit` tokens, of which it says
        `estimate`; None where that is nothing."""
        seat.use.asks += 1
        forecast = seat.worth.survival(seat.own, estimate, limit, terms.floor)
        if not forecast.chances:
            return None
        row_s, token_s = terms.key_s * keys, self.costs.choosing_seconds(seat.kind)
        if seat.ratio:
            row_s, token_s = row_s + token_s, 0.0
        return Option(seat.name, self.costs.drafter(seat.name), forecast, row_s, token_s)

    def advise(self, terms: Terms, offers: Sequence[Sequence[Option]]) -> Choice:
        """What pays, or where nothing does, what may be probed."""
        choice = choose(offers, terms)
        self._credit(choice, offers)
        for use in self.uses.values():
            if use.asks:
                use.settle()
        return choice if choice.gain > 0.0 else self._probe(terms, offers) or choice

    def _credit(self, choice: Choice, offers: Sequence[Sequence[Option]]) -> None:
        """Divides the choice's gain: to each drafter by what it adds to those before it, so that of two that know the
        same the later one may rest."""
        added = dict[str, float]()
        for options, count in zip(offers, choice.rows):
            best = 0.0
            for option in options if count else ():
                if option.worth > best:
                    added[option.drafter] = added.get(option.drafter, 0.0) + option.worth - best
                    best = option.worth
        whole = sum(added.values())
        for name, worth in added.items():
            self.uses[name].credit += choice.gain * worth / whole

    def _probe(self, terms: Terms, offers: Sequence[Sequence[Option]]) -> Choice | None:
        """One token of a drafter that does not seem to pay, where its budget covers what that is expected to lose."""
        for budget in self._budgets.values():
            budget.earn(self._earned / len(self._budgets))
        self._earned = 0.0
        for j, option in ((j, option) for j, offer in enumerate(offers) for option in offer):
            extra = terms.row_s + terms.handling_s + option.row_s + option.cost.call + option.reading_s
            loss = max(extra - option.survival[0] / terms.pace, 0.0) + MARGIN / terms.pace
            if self._budgets[option.drafter].covers(loss):
                taken = [option if i == j else None for i in range(len(offers))]
                return Choice(taken, [int(i == j) for i in range(len(offers))], extra_s=extra, probing=True)
        return None

    def learn(self, tokens: float, ratio: float, plain_s: float, drafted: bool, probing: bool) -> None:
        """The clock's verdict on a round of decoding alone. tokens: committed, a sequence; ratio: its time in plain
        rounds."""
        self.pace.learn(tokens, ratio)
        self._earned += ratio * plain_s
        if not drafted:
            self.guard.plain_round()
        elif not probing:
            self.guard.learn(tokens - ratio)
