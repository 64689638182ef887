"""Where the policy meets the engine: gathers what it needs of a round, asks it, and learns from what came out.

The arithmetic is in `plan/`. Nothing here can change a token: a grant says how much may be drafted, and verification
what is kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace

from sooner.draft.protocol import Ask, Drafter, Estimates, falls_behind
from sooner.engine.judge import rule_for
from sooner.engine.load import Load
from sooner.engine.scheduler import Turn
from sooner.engine.sequence import Sequence, switch_off
from sooner.plan.adviser import Adviser, Seat, rounds_ahead
from sooner.plan.cost import SETTLED, LiveCosts
from sooner.plan.policy import PLAIN, Choice, Grant, Option, Terms, fixed
from sooner.types import Draft, Rule

PREFILL = "prefill"
READS, SILENT = Grant("", 0, PREFILL), Grant("", 0, "plain: nothing to propose")
RESTS = Grant("", 0, "plain: of late asking has not been worth its time")
COSTS_EVERY = 4  # rounds between two that correct the costs, which takes longer than it is worth in every one


@dataclass(slots=True)
class Planned:
    """What was known when a round was planned, for comparison with what it became.

    asks: answers of drafters that were weighed, None where they do not tell what one usually costs. seconds: that
    planning took.
    """

    load: Load  # with drafts of a fixed length, without those that the policy grants
    plain_s: float
    free: bool  # whether every sequence decoded, and nobody but the policy could draft
    asks: int | None
    grants: list[Grant] = field(default_factory=list)
    taken: dict[int, Option] = field(default_factory=dict)  # by turn: what its draft was hoped to bring
    probing: bool = False
    seconds: float = 0.0


@dataclass(slots=True)
class Chair:
    """A drafter's seat at one sequence, and what it is asked. The ask is renewed when its limit changes.

    cached: of a drafter that may have fallen behind.
    """

    seat: Seat
    ask: Ask
    estimate: Callable[[Ask], Iterable[float] | None]
    cached: Callable[[int], int] | None


@dataclass(slots=True)
class Guest:
    """What does not change as long as a sequence lives. kind: how its plain rounds choose; longest: of its drafts.

    asked: whether its drafters have seen its prompt.
    """

    kind: str
    longest: int
    chairs: list[Chair]
    asked: bool = False


class Planner:
    """One engine's policy at work.

    seconds: spent on planning so far. asking_s: beside that, on what drafters say of themselves, for which they read
    what is new. on_stale is called when live rounds contradict the cost table that the planner began with.
    """

    def __init__(
        self, costs: LiveCosts, drafters: Mapping[str, Drafter], on_stale: Callable[[], None] = lambda: None
    ) -> None:
        self.costs = costs
        self.adviser = Adviser(costs, list(drafters))
        self.seconds = self.asking_s = 0.0
        self._rounds = 0
        self._drafters = drafters
        self._estimates = {
            name: d.estimate if isinstance(d, Estimates) else _says_nothing for name, d in drafters.items()
        }
        self._behind = {name for name, drafter in drafters.items() if falls_behind(drafter)}
        self._guests: dict[int, Guest] = {}
        self._planned: Planned | None = None  # the round at hand, unless it was settled before
        self._on_stale = on_stale
        self._doze, self._resting = 0, set[int]()  # rounds to come in which none of these sequences asks anybody

    def grant(self, turns: Seq[Turn]) -> list[Grant]:
        """A grant for every turn; requests with a fixed length get what they say."""
        if not self._drafters:  # nothing to weigh, and no cost that anybody asks for
            return [READS if turn.prefills else PLAIN for turn in turns]
        start, asked = time.perf_counter(), self.asking_s
        grants = [RESTS] * len(turns) if self._dozes(turns) else self._weigh(turns)
        spent = time.perf_counter() - start
        self.seconds += spent - (self.asking_s - asked)
        if self._planned:
            self._planned.seconds = spent
        return grants

    def _weigh(self, turns: Seq[Turn]) -> list[Grant]:
        given = [_given(turn) for turn in turns]
        load = Load.of(turns, [grant.tokens if grant else 0 for grant in given])
        guests = [self._guest(turn.sequence) for turn in turns]
        asking = [i for i, grant in enumerate(given) if grant is None]
        reads = any(grant is READS for grant in given)
        free = bool(asking) and not reads and not any(grant and grant.tokens for grant in given)
        planned = self._planned = Planned(load, self._plain_seconds(guests, load), free, None if reads else 0)
        chosen = self._ask(turns, guests, asking, planned) if asking else {}
        planned.grants = [grant or chosen[i] for i, grant in enumerate(given)]
        return planned.grants

    def unread(self, name: str, sequences: Iterable[Sequence]) -> int:
        """Ledger tokens that the drafter must read before it proposes; one that estimates reads when it is asked."""
        if self._estimates[name] is not _says_nothing:
            return 0
        return sum(_lacks(self._drafters[name].cached, sequence) for sequence in sequences)

    def learn_draft(self, name: str, asks: Seq[Ask], unread: int, seconds: float) -> None:
        """One proposal, before which there were so many `unread` tokens."""
        if not self._corrects:
            return
        depth = max(-(-ask.limit // ask.branches) for ask in asks)
        self.costs.learn_draft(name, len(asks), depth, unread, seconds)

    def learn(
        self, turns: Seq[Turn], drafts: Seq[Draft], accepted: Seq[int], committed: Seq[int], marks: Seq[float]
    ) -> None:
        """The round as it was played. marks: its begin, and the ends of drafting, the pass, choosing, committing."""
        if not self._planned:
            return
        start = time.perf_counter()
        planned = self._planned
        if self._corrects:
            self._correct(planned, turns, drafts, committed, marks)
        self._rounds += 1
        for i, option in planned.taken.items():
            option.forecast.learn(len(drafts[i]), accepted[i])
        if planned.free:
            tokens, ratio = sum(committed) / len(turns), (marks[-1] - marks[0]) / planned.plain_s
            self.adviser.learn(tokens, ratio, planned.plain_s, any(drafts), planned.probing)
        spent = time.perf_counter() - start
        self.seconds += spent
        if planned.asks is not None:
            self.costs.learn_planning(planned.asks, planned.seconds + spent)

    @property
    def _corrects(self) -> bool:
        """Whether this round corrects the costs."""
        return self._rounds < SETTLED or self._rounds % COSTS_EVERY == 0

    def _correct(
        self, planned: Planned, turns: Seq[Turn], drafts: Seq[Draft], committed: Seq[int], marks: Seq[float]
    ) -> None:
        """The costs, by a round that was timed."""
        _, drafted, passed, chosen, ended = marks
        known = [0 if i in planned.taken else grant.tokens for i, grant in enumerate(planned.grants)]
        load = planned.load.grown([len(draft) - count for draft, count in zip(drafts, known)])
        self.costs.learn_pass(self._pass_seconds(load), passed - drafted, load.rows)
        self._learn_choosing(turns, drafts, committed, chosen - passed)
        self.costs.other.learn((ended - chosen) / len(turns))
        if self.costs.newly_stale():
            self._on_stale()

    def _dozes(self, turns: Seq[Turn]) -> bool:
        """Whether this round is one of those that were settled before: nobody is asked, and nothing learned."""
        self._planned = None
        known = self._doze > 0 and not any(turn.prefills or turn.sequence.key not in self._resting for turn in turns)
        self._doze = self._doze - 1 if known else 0
        return known

    def forget(self, key: int) -> None:
        """The sequence has ended."""
        self._guests.pop(key, None)

    def _ask(self, turns: Seq[Turn], guests: Seq[Guest], asking: Seq[int], planned: Planned) -> dict[int, Grant]:
        """The policy's grants, by turn."""
        adviser, load = self.adviser, planned.load
        if why := adviser.guard.verdict():
            return dict.fromkeys(asking, Grant("", 0, why))
        pace = self._pace(turns, guests, planned)
        if self._nobody_asked([guests[i] for i in asking], pace):
            if len(asking) == len(turns):
                self._doze, self._resting = adviser.skip(), {turn.sequence.key for turn in turns}
            return dict.fromkeys(asking, RESTS)
        terms = adviser.terms(load.rows, load.logits, planned.plain_s, pace)
        usual = not adviser.all_asked and all(guests[i].asked for i in asking)
        offers = [self._offers(guests[i], turns[i].sequence, load.keys[i], terms) for i in asking]
        if planned.asks is not None:
            planned.asks = sum(use.asks for use in adviser.uses.values()) if usual else None
        choice = adviser.advise(terms, offers)
        planned.probing = choice.probing
        planned.taken = {i: option for i, option in zip(asking, choice.options) if option}
        return {i: _grant(choice, j, offers[j], terms) for j, i in enumerate(asking)}

    def _nobody_asked(self, guests: Seq[Guest], pace: float) -> bool:
        """Whether what drafters would say of these sequences is not worth the time. The first time, in which they read
        the prompt, they are asked in any case."""
        if not all(guest.asked for guest in guests):
            return False
        uses = [chair.seat.use for guest in guests for chair in guest.chairs if not chair.seat.use.rests]
        return not self.adviser.pays_to_ask(uses, pace)

    def _pace(self, turns: Seq[Turn], guests: Seq[Guest], planned: Planned) -> float:
        """That of decoding where no prompt is in its way."""
        if planned.free:
            return self.adviser.begin(len(turns), planned.plain_s)
        at = [i for i, turn in enumerate(turns) if not turn.prefills]
        alone = self._plain_seconds([guests[i] for i in at], Load.of([turns[i] for i in at], [0] * len(at)))
        return self.adviser.begin(len(at), alone)

    def _offers(self, guest: Guest, sequence: Sequence, keys: int, terms: Terms) -> list[Option]:
        """What each of the request's drafters could do for it."""
        remaining = sequence.remaining
        limit = min(guest.longest, remaining - 1)
        offers: list[Option] = []
        for chair in guest.chairs:
            if guest.asked and chair.seat.use.rests:
                continue
            try:
                option = self.adviser.option(terms, chair.seat, self._asked(chair, limit), limit, keys)
            except Exception as error:  # whatever a user's drafter raises must not end the text
                switch_off(chair.seat.name, [sequence], error)
                return []
            if option:
                if chair.cached:
                    unread = _lacks(chair.cached, sequence)
                    option.must_read(unread, rounds_ahead(remaining, sequence.ledger.output_length))
                offers.append(option)
        guest.asked = True
        return offers

    def _asked(self, chair: Chair, limit: int) -> Iterable[float] | None:
        """What the drafter says of its next tokens."""
        start = time.perf_counter()
        if chair.ask.limit != limit:
            chair.ask = replace(chair.ask, limit=limit)
        estimate = chair.estimate(chair.ask)
        self.asking_s += time.perf_counter() - start
        return estimate

    def _learn_choosing(self, turns: Seq[Turn], drafts: Seq[Draft], committed: Seq[int], seconds: float) -> None:
        """Only where all turns chose in one way: otherwise nobody knows whose time it was."""
        sampled = [any(q is not None for q in draft.probs) for draft in drafts]
        rules = [rule_for(turn.sequence.request, has) for turn, has in zip(turns, sampled)]
        kinds = {_kind(rule, turn.sequence) for rule, turn in zip(rules, turns)}
        judged = [count if rule == "match" else len(d) + 1 for rule, d, count in zip(rules, drafts, committed)]
        if len(kinds) == 1 and all(committed):
            self.costs.learn_choosing(kinds.pop(), seconds / sum(judged))

    def _plain_seconds(self, guests: Seq[Guest], load: Load) -> float:
        choosing = sum(self.costs.choosing_seconds(guest.kind) for guest in guests)
        return self._pass_seconds(load) + choosing + self.costs.other.value * len(guests)

    def _pass_seconds(self, load: Load) -> float:
        return self.costs.pass_seconds(load.rows, load.logits, sum(load.keys), load.row_keys)

    def _guest(self, sequence: Sequence) -> Guest:
        if guest := self._guests.get(sequence.key):
            return guest
        request = sequence.request
        chairs = [self._chair(name, sequence) for name in request.speculation.drafters]
        guest = Guest(_kind(rule_for(request, False), sequence), request.speculation.longest, chairs)
        return self._guests.setdefault(sequence.key, guest)

    def _chair(self, name: str, sequence: Sequence) -> Chair:
        drafter, request = self._drafters[name], sequence.request
        rule = rule_for(request, drafter.samples)
        worth = self.adviser.worth(name, not request.params.greedy)
        seat = Seat(name, _kind(rule, sequence), rule != "match", worth, self.adviser.uses[name])
        ask = Ask(sequence.key, request, sequence.ledger, request.speculation.longest, rule)
        return Chair(seat, ask, self._estimates[name], drafter.cached if name in self._behind else None)


def _lacks(cached: Callable[[int], int], sequence: Sequence) -> int:
    """Ledger tokens that a drafter's state does not cover, the last left out: it is read as it is drafted from."""
    return max(len(sequence.ledger) - 1 - cached(sequence.key), 0)


def _grant(choice: Choice, j: int, offers: Seq[Option], terms: Terms) -> Grant:
    """The choice for one sequence, in words."""
    option, count = choice.options[j], choice.rows[j]
    if option:
        why = "probe" if choice.probing else "pays"
        hoped, extra, plain = sum(option.survival[:count]), 1e3 * choice.extra_s, 1e3 * terms.plain_s
        return Grant(option.drafter, count, f"{why}: +{hoped:.2f} tokens, the round +{extra:.1f} ms on {plain:.1f}")
    if not offers:
        return SILENT
    best = max(offers, key=_first) if len(offers) > 1 else offers[0]
    worth = terms.pace * (terms.row_s + best.row_s)
    return Grant("", 0, f"plain: {best.drafter} offers {_first(best):.2f} tokens for a row worth {worth:.2f}")


def _first(option: Option) -> float:
    return option.forecast.chances[0]


def _given(turn: Turn) -> Grant | None:
    """What is settled without the policy; None where it is to choose."""
    sequence = turn.sequence
    if turn.prefills:
        return READS
    if not sequence.drafting:
        return Grant("", 0, sequence.stats.drafter_error)
    speculation = sequence.request.speculation
    if speculation.drafters and speculation.adaptive and sequence.remaining > 1:
        return None
    return fixed(speculation, sequence.remaining)


def _says_nothing(ask: Ask) -> None:
    """The estimate of a drafter that makes none."""


def _kind(rule: Rule, sequence: Sequence) -> str:
    """Ways to choose a token that cost differently."""
    if rule != "match":
        return "ratio"
    return "greedy" if sequence.request.params.greedy else "sampled"
