"""Plays recorded answers again under a cost model: what any setting would have taken, without a model.

Under greedy and seeded sampling an answer does not depend on its drafts. So it is enough to know, at every position of
an answer, what each drafter would have proposed there and how much of that was right.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sooner.plan.cost import LiveCosts
from sooner.plan.guard import Pace
from sooner.plan.policy import Option, choose, floor_of
from sooner.plan.worth import Forecast, Own, Worth


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
    """drafter "" is plain; tokens None is the policy over `names`."""

    drafter: str = ""
    tokens: int | None = 0
    names: tuple[str, ...] = ()


PLAIN = Setting()


@dataclass(slots=True)
class Played:
    """One answer as it went. seconds: its share of the rounds after its prompt's pass; prefill_s: of that pass."""

    recorded: Recorded
    done: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    seconds: float = 0.0
    prefill_s: float = 0.0
    owns: dict[str, Own] = field(default_factory=dict)

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


@dataclass(slots=True)
class Replay:
    """costs: of the machine. kind: the way of choosing (`LiveCosts.choosing`). concurrency: answers in flight."""

    costs: LiveCosts
    kind: str
    concurrency: int = 1
    worths: dict[str, Worth] = field(default_factory=dict)
    pace: Pace = field(default_factory=Pace)

    def play(self, answers: Sequence[Recorded], setting: Setting) -> list[Played]:
        """All answers, in their order, as many at once as are in flight."""
        queue, active, finished = deque(answers), list[Played](), list[Played]()
        while queue or active:
            fresh = [Played(queue.popleft()) for _ in range(min(self.concurrency - len(active), len(queue)))]
            self._round(active, fresh, setting)
            active += fresh
            finished += [one for one in active if one.done >= one.recorded.length]
            active = [one for one in active if one.done < one.recorded.length]
        return finished

    def _round(self, active: Sequence[Played], fresh: Sequence[Played], setting: Setting) -> None:
        plain_s = self._seconds(active, fresh, [0] * len(active), 0.0)
        plans = self._plans(active, fresh, setting, plain_s)
        rows = [min(count, one.offers[name].proposed) if count else 0 for one, (name, count, _) in zip(active, plans)]
        drafting = self._drafting([name for name, count, _ in plans if count], max((p[1] for p in plans), default=0))
        accepted = [
            min(one.offers[name].accepted, count) if count else 0
            for one, (name, _, _), count in zip(active, plans, rows)
        ]
        seconds = self._seconds(active, fresh, rows, drafting, sum(accepted)) / (len(active) + len(fresh))
        if setting.tokens is None and active and not fresh:
            self.pace.learn(1.0 + sum(accepted) / len(active), seconds * len(active) / plain_s)
        for one, (_, _, forecast), count, right in zip(active, plans, rows, accepted):
            if forecast:
                forecast.learn(count, right)
            one.done += right + 1
            one.rounds, one.drafted, one.accepted = one.rounds + 1, one.drafted + count, one.accepted + right
            one.seconds += seconds
        for one in fresh:
            one.done, one.prefill_s = 1, seconds

    def _plans(
        self, active: Sequence[Played], fresh: Sequence[Played], setting: Setting, plain_s: float
    ) -> list[tuple[str, int, Forecast | None]]:
        if setting.tokens is not None:
            return [(setting.drafter, min(setting.tokens, one.room), None) for one in active]
        if not active:
            return []
        rows, logits = _rows(active, fresh, 0)

        def prices(most: int) -> list[float]:
            return self.costs.added_seconds(rows, logits, most)

        pace = self.pace.value * len(active) / (self._seconds(active, [], [0] * len(active), 0.0) if fresh else plain_s)
        least = floor_of(prices, pace)
        offers = [self._options(one, setting.names, least) for one in active]
        choice = choose([[option for option, _ in offer] for offer in offers], prices, plain_s, pace)
        return [
            (option.drafter, count, next(f for mine, f in offer if mine is option)) if option else ("", 0, None)
            for offer, option, count in zip(offers, choice.options, choice.rows)
        ]

    def _options(self, one: Played, names: Sequence[str], least: float) -> list[tuple[Option, Forecast]]:
        result = []
        for name in names:
            offer = one.offers[name]
            limit = min(offer.proposed, one.room)
            worth = self.worths.setdefault(name, Worth(self.kind != "greedy"))
            forecast = worth.survival(one.owns.setdefault(name, Own()), offer.estimate, limit, least)
            if forecast.chances:
                row_s, token_s = self.costs.row_key_seconds * one.keys, self.costs.choosing_seconds(self.kind)
                result.append((Option(name, self.costs.drafter(name), forecast.chances, row_s, token_s), forecast))
        return result

    def _seconds(
        self, active: Sequence[Played], fresh: Sequence[Played], rows: Sequence[int], drafting: float, accepted: int = 0
    ) -> float:
        """A round: its pass, choosing, drafting and the rest. rows: that each active answer drafts."""
        count = len(active) + len(fresh)
        keys = sum(one.keys for one in active) + sum(one.recorded.prompt for one in fresh)
        row_keys = sum(one.keys * (1 + drafted) for one, drafted in zip(active, rows))
        row_keys += sum(one.recorded.prompt**2 // 2 for one in fresh)
        passed = self.costs.pass_seconds(*_rows(active, fresh, sum(rows)), keys, row_keys)
        choosing = (count + accepted) * self.costs.choosing_seconds(self.kind)
        return passed + choosing + drafting + count * self.costs.other.value

    def _drafting(self, names: Sequence[str], depth: int) -> float:
        """Proposals, and reading the token that each drafter lacks."""
        return sum(self.costs.drafter(name).seconds(names.count(name), depth, 0) for name in set(names))


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
