"""Where the policy meets the engine: gathers what it needs of a round, asks it, and learns from what came out.

The arithmetic is in `plan/`. Nothing here can change a token: a grant says how much may be drafted, and verification
what is kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from functools import partial

from sooner.draft.protocol import Ask, Drafter, Estimates
from sooner.engine.judge import rule_for
from sooner.engine.load import Load
from sooner.engine.scheduler import Turn
from sooner.engine.sequence import Sequence, switch_off
from sooner.plan.cost import SETTLED, LiveCosts
from sooner.plan.guard import START_S, Budget, Guard, Pace
from sooner.plan.policy import Choice, Grant, Option, choose, fixed, floor_of
from sooner.plan.worth import Forecast, Own, Worth
from sooner.types import Draft, Rule

PREFILL = "prefill"
COSTS_EVERY = 4  # rounds between two that correct the costs, which takes longer than it is worth in every one
AHEAD = 32  # tokens that a sequence is expected to go on for at least; beyond them, as many as it has come


@dataclass(slots=True)
class Planned:
    """What was known when a round was planned, for comparison with what it became."""

    load: Load  # with drafts of a fixed length, without those that the policy grants
    plain_s: float
    free: bool  # whether every sequence decoded, and nobody but the policy could draft
    grants: list[Grant] = field(default_factory=list)
    taken: dict[int, Forecast] = field(default_factory=dict)  # by turn: what its draft was hoped to bring
    row_s: float = 0.0  # that one drafted row adds to the products
    probing: bool = False


@dataclass(slots=True)
class Seat:
    """One drafter of one sequence: what does not change as long as it lives, and its own record."""

    name: str
    rule: Rule
    kind: str
    worth: Worth
    own: Own = field(default_factory=Own)


class Planner:
    """One engine's policy. seconds: spent on planning so far, drafters' estimates included.

    on_stale is called when live rounds contradict the cost table that the planner began with.
    """

    def __init__(
        self, costs: LiveCosts, drafters: Mapping[str, Drafter], on_stale: Callable[[], None] = lambda: None
    ) -> None:
        self.costs = costs
        self.worths: dict[tuple[str, bool], Worth] = {}
        self.guard, self.pace = Guard(), Pace()
        self.seconds = 0.0
        self._rounds = 0
        self._drafters = drafters
        self._estimates = {
            name: d.estimate if isinstance(d, Estimates) else _says_nothing for name, d in drafters.items()
        }
        self._budgets = {name: Budget(START_S / len(drafters)) for name in drafters}
        self._seats: dict[int, list[Seat]] = {}
        self._planned = Planned(Load(0, 0, 0, ()), 0.0, free=False)
        self._on_stale = on_stale

    def grant(self, turns: Seq[Turn]) -> list[Grant]:
        """A grant for every turn; requests with a fixed length get what they say."""
        start = time.perf_counter()
        given = [_given(turn) for turn in turns]
        load = Load.of(turns, [grant.tokens if grant else 0 for grant in given])
        asking = [i for i, grant in enumerate(given) if grant is None]
        free = bool(asking) and not any(grant and (grant.tokens or grant.reason == PREFILL) for grant in given)
        planned = self._planned = Planned(load, self._plain_seconds(turns, load), free)
        chosen = self._ask(turns, asking, planned) if asking else {}
        planned.grants = [grant or chosen[i] for i, grant in enumerate(given)]
        self.seconds += time.perf_counter() - start
        return planned.grants

    def learn_draft(self, name: str, asks: Seq[Ask], unread: int, seconds: float) -> None:
        """One proposal. unread: ledger tokens that the drafter lacked, the last of each sequence left out."""
        depth = max(-(-ask.limit // ask.branches) for ask in asks)
        self.costs.learn_draft(name, len(asks), depth, unread, seconds)

    def learn(
        self, turns: Seq[Turn], drafts: Seq[Draft], accepted: Seq[int], committed: Seq[int], marks: Seq[float]
    ) -> None:
        """The round as it was played. marks: its begin, and the ends of drafting, the pass, choosing, committing."""
        start = time.perf_counter()
        planned, (began, drafted, passed, chosen, ended) = self._planned, marks
        self._rounds += 1
        if self._rounds < SETTLED or self._rounds % COSTS_EVERY == 0:
            known = [0 if i in planned.taken else grant.tokens for i, grant in enumerate(planned.grants)]
            load = planned.load.grown([len(draft) - count for draft, count in zip(drafts, known)])
            self.costs.learn_pass(self._pass_seconds(load), passed - drafted, load.rows)
            self._learn_choosing(turns, drafts, committed, chosen - passed)
            self.costs.other.learn((ended - chosen) / len(turns))
            if self.costs.newly_stale():
                self._on_stale()
        for i, forecast in planned.taken.items():
            forecast.learn(len(drafts[i]), accepted[i])
        if planned.free:
            self._compare(planned, sum(committed) / len(turns), ended - began, any(map(len, drafts)))
        self.seconds += time.perf_counter() - start

    def forget(self, key: int) -> None:
        """The sequence has ended."""
        self._seats.pop(key, None)

    def _ask(self, turns: Seq[Turn], asking: Seq[int], planned: Planned) -> dict[int, Grant]:
        """The policy's grants, by turn."""
        if why := self.guard.verdict():
            return dict.fromkeys(asking, Grant("", 0, why))
        pace = self._pace(turns, planned)
        prices = partial(self.costs.added_seconds, planned.load.rows, planned.load.logits)
        planned.row_s = prices(1)[1]
        least = floor_of(prices, pace)
        offers = [self._offers(turns[i], planned.load.keys[i], least) for i in asking]
        options = [[option for option, _ in offer] for offer in offers]
        choice = choose(options, prices, planned.plain_s, pace)
        if not any(choice.rows):
            choice = self._probe(options, planned, pace) or choice
            planned.probing = any(choice.rows)
        for i, offer, option in zip(asking, offers, choice.options):
            if option:
                planned.taken[i] = next(forecast for mine, forecast in offer if mine is option)
        return {i: self._grant(choice, j, options[j], planned, pace) for j, i in enumerate(asking)}

    def _offers(self, turn: Turn, keys: int, least: float) -> list[tuple[Option, Forecast]]:
        """What each of the request's drafters could do for it. least: of a token that can pay."""
        sequence, request = turn.sequence, turn.sequence.request
        limit = min(request.speculation.longest, sequence.remaining - 1)
        offers: list[tuple[Option, Forecast]] = []
        for seat in self._seats_of(sequence) if limit > 0 else ():
            ask = Ask(sequence.key, request, sequence.ledger, limit, seat.rule)
            try:
                forecast = seat.worth.survival(seat.own, self._estimates[seat.name](ask), limit, least)
            except Exception as error:  # whatever a user's drafter raises must not end the text
                switch_off(seat.name, [sequence], error)
                return []
            if forecast.chances:
                offers.append((self._option(seat, sequence, forecast, keys), forecast))
        return offers

    def _option(self, seat: Seat, sequence: Sequence, forecast: Forecast, keys: int) -> Option:
        cost, choosing = self.costs.drafter(seat.name), self.costs.choosing_seconds(seat.kind)
        unread = len(sequence.ledger) - self._drafters[seat.name].cached(sequence.key) - 1
        return Option(
            drafter=seat.name,
            cost=cost,
            survival=forecast.chances,
            row_s=self.costs.row_key_seconds * keys + (choosing if seat.rule != "match" else 0.0),
            token_s=choosing if seat.rule == "match" else 0.0,
            reading_s=cost.catch_up * max(unread, 0),
            rounds=max(min(sequence.remaining, max(AHEAD, sequence.ledger.output_length)) / 2, 1.0),
        )

    def _grant(self, choice: Choice, j: int, options: Seq[Option], planned: Planned, pace: float) -> Grant:
        option, count = choice.options[j], choice.rows[j]
        if option:
            why = "probe" if planned.probing else "pays"
            hoped, extra, plain = sum(option.survival[:count]), 1e3 * choice.extra_s, 1e3 * planned.plain_s
            return Grant(option.drafter, count, f"{why}: +{hoped:.2f} tokens, the round +{extra:.1f} ms on {plain:.1f}")
        if not options:
            return Grant("", 0, "plain: nothing to propose")
        best = max(options, key=lambda option: option.survival[0])
        worth = pace * (planned.row_s + best.row_s)
        return Grant("", 0, f"plain: {best.drafter} offers {best.survival[0]:.2f} tokens for a row worth {worth:.2f}")

    def _probe(self, options: Seq[Seq[Option]], planned: Planned, pace: float) -> Choice | None:
        """One token of a drafter that does not seem to pay, where its budget covers what that is expected to lose."""
        for j, option in ((j, option) for j, offer in enumerate(options) for option in offer):
            extra = planned.row_s + option.row_s + option.cost.call + option.reading_s
            loss = extra - option.survival[0] / pace
            if self._budgets[option.drafter].covers(loss):
                taken = [option if i == j else None for i in range(len(options))]
                return Choice(taken, [int(i == j) for i in range(len(options))], extra_s=extra)
        return None

    def _learn_choosing(self, turns: Seq[Turn], drafts: Seq[Draft], committed: Seq[int], seconds: float) -> None:
        """Only where all turns chose in one way: otherwise nobody knows whose time it was."""
        sampled = [any(q is not None for q in draft.probs) for draft in drafts]
        rules = [rule_for(turn.sequence.request, has) for turn, has in zip(turns, sampled)]
        kinds = {_kind(rule, turn.sequence) for rule, turn in zip(rules, turns)}
        judged = [count if rule == "match" else len(d) + 1 for rule, d, count in zip(rules, drafts, committed)]
        if len(kinds) == 1 and all(committed):
            self.costs.learn_choosing(kinds.pop(), seconds / sum(judged))

    def _compare(self, planned: Planned, tokens: float, seconds: float, drafted: bool) -> None:
        """Tells the clock's verdict on a round of decoding alone. tokens: committed, a sequence."""
        ratio = seconds / planned.plain_s
        self.pace.learn(tokens, ratio)
        for budget in self._budgets.values():
            budget.earn(seconds / len(self._budgets))
        if not drafted:
            self.guard.plain_round()
        elif not planned.probing:
            self.guard.learn(tokens - ratio)

    def _pace(self, turns: Seq[Turn], planned: Planned) -> float:
        """Tokens a second that this batch commits where no prompt is in its way."""
        if planned.free:
            return self.pace.value * len(turns) / planned.plain_s
        decoding = [turn for turn in turns if turn.completes and not turn.sequence.prefilling]
        load = Load.of(decoding, [0] * len(decoding))
        return self.pace.value * len(decoding) / self._plain_seconds(decoding, load)

    def _plain_seconds(self, turns: Seq[Turn], load: Load) -> float:
        rules = [rule_for(turn.sequence.request, False) for turn in turns]
        choosing = sum(self.costs.choosing_seconds(_kind(rule, turn.sequence)) for rule, turn in zip(rules, turns))
        return self._pass_seconds(load) + choosing + self.costs.other.value * len(turns)

    def _pass_seconds(self, load: Load) -> float:
        return self.costs.pass_seconds(load.rows, load.logits, sum(load.keys), load.row_keys)

    def _seats_of(self, sequence: Sequence) -> list[Seat]:
        if sequence.key not in self._seats:
            request = sequence.request
            names = request.speculation.drafters
            rules = [rule_for(request, self._drafters[name].samples) for name in names]
            self._seats[sequence.key] = [
                Seat(name, rule, _kind(rule, sequence), self._worth(name, not request.params.greedy))
                for name, rule in zip(names, rules)
            ]
        return self._seats[sequence.key]

    def _worth(self, name: str, sampled: bool) -> Worth:
        if (name, sampled) not in self.worths:
            self.worths[name, sampled] = Worth(sampled)
        return self.worths[name, sampled]


def _given(turn: Turn) -> Grant | None:
    """What is settled without the policy; None where it is to choose."""
    sequence = turn.sequence
    if not turn.completes or sequence.prefilling:
        return Grant("", 0, PREFILL)
    if not sequence.drafting:
        return Grant("", 0, sequence.stats.drafter_error)
    speculation = sequence.request.speculation
    if speculation.adaptive and sequence.remaining > 1:
        return None
    return fixed(speculation, sequence.remaining)


def _says_nothing(ask: Ask) -> None:
    """The estimate of a drafter that makes none."""


def _kind(rule: Rule, sequence: Sequence) -> str:
    """Ways to choose a token that cost differently."""
    if rule != "match":
        return "ratio"
    return "greedy" if sequence.request.params.greedy else "sampled"
