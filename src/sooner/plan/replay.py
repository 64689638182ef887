"""Plays recorded answers again under a cost model: what any setting would have taken, without a model.

Under greedy and seeded sampling an answer does not depend on its drafts. So it is enough to know, at every position of
an answer, what each drafter would have proposed there and how much of that was right.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from sooner.plan.adviser import Adviser, Seat, rounds_ahead
from sooner.plan.cost import LiveCosts
from sooner.plan.policy import Option, Terms
from sooner.types import LONGEST_DRAFT


@dataclass(frozen=True, slots=True)
class Offer:
    """What a drafter would have proposed at one position. estimate: None where the drafter makes none."""

    proposed: int
    accepted: int
    estimate: tuple[float, ...] | None


@dataclass(frozen=True, slots=True)
class Recorded:
    """One answer. offers[i][name]: before output token i, from i = 1 on; the first comes with the prompt's pass."""

    id: str
    category: str
    prompt: int  # tokens
    length: int  # tokens of the answer
    offers: tuple[Mapping[str, Offer], ...]


@dataclass(frozen=True, slots=True)
class Setting:
    """drafter "" is plain; tokens None is the policy over `names`.

    foresight: whoever of `names` has most right drafts just that. It shows what is left for a better policy, and what
    only better drafts can bring.
    """

    drafter: str = ""
    tokens: int | None = 0
    names: tuple[str, ...] = ()
    foresight: bool = False


PLAIN = Setting()


@dataclass(slots=True)
class Played:
    """One answer as it went. seconds: its share of the rounds after its prompt's pass; prefill_s: of that pass.

    read: how many tokens of prompt and answer each drafter with a cache of its own has read.
    """

    recorded: Recorded
    done: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    seconds: float = 0.0
    prefill_s: float = 0.0
    seats: dict[str, Seat] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """After the first."""
        return self.recorded.length - 1

    @property
    def keys(self) -> int:
        return self.recorded.prompt + self.done

    @property
    def offers(self) -> Mapping[str, Offer]:
        return self.recorded.offers[self.done]

    @property
    def room(self) -> int:
        return self.recorded.length - self.done - 1


@dataclass(frozen=True, slots=True)
class Part:
    """An answer's part in a round: who drafts for it, how much, and how much of that is right."""

    name: str = ""
    asked: int = 0
    drafted: int = 0
    accepted: int = 0
    unread: int = 0
    option: Option | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """costs: of the machine. kind: the way of choosing (`LiveCosts.choosing`). concurrency: answers in flight.
    behind: the drafters that read the ledger only when they draft, as a model does."""

    costs: LiveCosts
    kind: str
    concurrency: int = 1
    behind: Collection[str] = ()

    def play(self, answers: Sequence[Recorded], setting: Setting) -> list[Played]:
        """All answers, in their order, as many at once as are in flight."""
        adviser = Adviser(self.costs, setting.names)
        queue, active, finished = deque(answers), list[Played](), list[Played]()
        while queue or active:
            fresh = [Played(queue.popleft()) for _ in range(min(self.concurrency - len(active), len(queue)))]
            self._round(active, fresh, setting, adviser)
            active += fresh
            finished += [one for one in active if one.done >= one.recorded.length]
            active = [one for one in active if one.done < one.recorded.length]
        return finished

    def _round(self, active: Sequence[Played], fresh: Sequence[Played], setting: Setting, adviser: Adviser) -> None:
        plain_s, probing, asks = self._seconds(active, fresh, [Part()] * len(active)), False, 0
        if setting.foresight:
            parts = [self._foreseen(one, setting.names) for one in active]
        elif setting.tokens is None:
            parts, probing, asks = self._advised(active, fresh, setting.names, adviser, plain_s)
        else:
            parts = [self._part(one, setting.drafter, min(setting.tokens, one.room)) for one in active]
        seconds = self._seconds(active, fresh, parts) + self._planning(parts, asks)
        if setting.tokens is None and active and not fresh:
            tokens = 1.0 + sum(part.accepted for part in parts) / len(active)
            drafted = any(part.drafted for part in parts)
            adviser.learn(tokens, seconds / plain_s, plain_s, drafted, probing)
        share = seconds / (len(active) + len(fresh))
        for one, part in zip(active, parts):
            self._settle(one, part, share)
        for one in fresh:
            one.done, one.prefill_s = 1, share

    def _settle(self, one: Played, part: Part, seconds: float) -> None:
        if part.option:
            part.option.forecast.learn(part.drafted, part.accepted)
        if part.asked:
            one.read[part.name] = one.keys + part.accepted
        one.done += part.accepted + 1
        one.rounds, one.seconds = one.rounds + 1, one.seconds + seconds
        one.drafted, one.accepted = one.drafted + part.drafted, one.accepted + part.accepted

    def _part(self, one: Played, name: str, count: int, option: Option | None = None) -> Part:
        if not count:
            return Part()
        offer = one.offers[name]
        drafted = min(count, offer.proposed)
        return Part(name, count, drafted, min(count, offer.accepted), self._unread(one, name), option)

    def _foreseen(self, one: Played, names: Sequence[str]) -> Part:
        name = max(names, key=lambda name: one.offers[name].accepted)
        return self._part(one, name, min(one.offers[name].accepted, one.room))

    def _unread(self, one: Played, name: str) -> int:
        return max(one.keys - 1 - one.read.get(name, 0), 0) if name in self.behind else 0

    def _advised(
        self, active: Sequence[Played], fresh: Sequence[Played], names: Sequence[str], adviser: Adviser, plain_s: float
    ) -> tuple[list[Part], bool, int]:
        """What the policy would do, whether it would be a probe, and how many answers of drafters it would weigh."""
        if not active or adviser.guard.verdict():
            return [Part()] * len(active), False, 0
        alone = self._seconds(active, [], [Part()] * len(active)) if fresh else plain_s
        pace = adviser.begin(len(active), alone)
        awake = [name for name in names if not adviser.uses[name].rests]
        if not adviser.pays_to_ask([adviser.uses[name] for one in active if one.room for name in awake], pace):
            return [Part()] * len(active), False, 0
        terms = adviser.terms(*_rows(active, fresh, 0), plain_s, pace)
        offers = [self._options(one, awake, adviser, terms) for one in active]
        asks = sum(use.asks for use in adviser.uses.values())
        choice = adviser.advise(terms, offers)
        parts = [
            self._part(one, option.drafter, count, option) if option else Part()
            for one, option, count in zip(active, choice.options, choice.rows)
        ]
        return parts, choice.probing, asks

    def _options(self, one: Played, names: Sequence[str], adviser: Adviser, terms: Terms) -> list[Option]:
        result = []
        for name in names if one.room else ():
            offer = one.offers[name]
            if name not in one.seats:
                worth = adviser.worth(name, self.kind != "greedy")
                one.seats[name] = Seat(name, self.kind, False, worth, adviser.uses[name])
            limit = min(LONGEST_DRAFT if offer.estimate is None else offer.proposed, one.room)
            if option := adviser.option(terms, one.seats[name], offer.estimate, limit, one.keys):
                option.must_read(self._unread(one, name), rounds_ahead(one.room + 1, one.done))
                result.append(option)
        return result

    def _seconds(self, active: Sequence[Played], fresh: Sequence[Played], parts: Sequence[Part]) -> float:
        """A round: its pass, choosing, drafting and the rest."""
        count, accepted = len(active) + len(fresh), sum(part.accepted for part in parts)
        keys = sum(one.keys for one in active) + sum(one.recorded.prompt for one in fresh)
        row_keys = sum(one.keys * (1 + part.drafted) for one, part in zip(active, parts))
        row_keys += sum(one.recorded.prompt**2 // 2 for one in fresh)
        rows = _rows(active, fresh, sum(part.drafted for part in parts))
        passed = self.costs.pass_seconds(*rows, keys, row_keys)
        choosing = (count + accepted) * self.costs.choosing_seconds(self.kind)
        return passed + choosing + self._drafting(parts) + count * self.costs.other.value

    def _planning(self, parts: Sequence[Part], asks: int) -> float:
        """Rounds in which nobody is asked were settled long before."""
        return self.costs.asking_seconds(asks) or self.costs.planning.value * any(part.asked for part in parts)

    def _drafting(self, parts: Sequence[Part]) -> float:
        """Proposals of all drafters, and what they read before; handling them."""
        handling = self.costs.handling_seconds if any(part.asked for part in parts) else 0.0
        return handling + sum(
            self.costs.drafter(name).seconds(
                sum(part.name == name for part in parts),
                max(part.asked for part in parts if part.name == name),
                sum(part.unread for part in parts if part.name == name),
            )
            for name in {part.name for part in parts if part.asked}
        )


def _rows(active: Sequence[Played], fresh: Sequence[Played], drafted: int) -> tuple[int, int]:
    """Rows of a pass, and those with logits."""
    return len(active) + sum(one.recorded.prompt for one in fresh) + drafted, len(active) + len(fresh) + drafted


def break_even(costs: LiveCosts, rows: int, sequences: int, choosing_s: float, draft_s: float) -> float:
    """The share of `rows` drafted tokens a sequence that must be accepted for a round to be worth its time.

    Plain decoding takes pass(n) + n choosing for n tokens; the round pass(n + n rows) + drafting and one choosing for
    each token it commits. Above 1 no draft of this length can pay.
    """
    plain = costs.products(sequences) + sequences * choosing_s
    round_s = costs.products(sequences * (1 + rows)) + sequences * choosing_s + draft_s
    token_s = plain / sequences - choosing_s
    return (round_s - plain) / (sequences * rows * token_s)
