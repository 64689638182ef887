"""Whether drafting really saved time, and what may be spent on finding out: estimates are checked against the clock."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

MEMORY = 60.0  # drafting rounds that the guard looks back on
FEWEST = 15  # drafting rounds before it judges
SURE = 2.0  # standard errors that make a loss established
FIRST_REST, LONGEST_REST = 32, 1024  # rounds that drafting pauses, doubled each time
PLAIN_EVERY = 96  # drafting rounds between two plain ones that keep the comparison honest

SHARE = 0.005  # of the decoding time may go into probes, of all drafters together
START_S, MOST_S = 0.003, 1.0  # that much before any decoding; and no more, however long nothing was probed

ASKED, ASKED_PRIOR = 0.1, 20.0  # tokens that an answer is hoped to bring at first; answers that this counts for
ASKS = 40.0  # answers that are remembered
ASK_EVERY = 24  # rounds between two in which a drafter is asked whose answers are not worth their time

PACE_MEMORY = 200.0  # rounds


@dataclass(slots=True)
class Guard:
    """Compares rounds that drafted with what plain rounds would have taken for the same tokens.

    A round saves tokens / sequences * plain_s - seconds. Its share of plain_s is averaged with forgetting; when the
    average is below zero by SURE standard errors, drafting rests.
    """

    count: int = 0
    mean: float = 0.0
    variance: float = 0.0
    rest: int = 0  # rounds that drafting still pauses
    next_rest: int = FIRST_REST
    since_plain: int = 0

    def learn(self, saved: float) -> None:
        """saved: time saved by a drafting round as a share of the plain round."""
        self.count += 1
        self.since_plain += 1
        gain = max(1.0 / self.count, 1.0 / MEMORY)
        news = saved - self.mean
        self.mean += gain * news
        self.variance += gain * (news * (saved - self.mean) - self.variance)
        error = sqrt(self.variance / min(self.count, MEMORY))
        if self.count >= FEWEST and self.mean + SURE * error < 0.0:
            self.rest, self.next_rest = self.next_rest, min(2 * self.next_rest, LONGEST_REST)
            self.count, self.mean, self.variance = 0, 0.0, 0.0
        elif self.count >= MEMORY and self.mean > SURE * error:
            self.next_rest = FIRST_REST

    def verdict(self) -> str:
        """Why the next round must be plain, or "" when it need not be."""
        if self.rest:
            return f"guard: drafting lost time and rests for {self.rest} rounds"
        return "calibrate: a plain round now and then" if self.since_plain >= PLAIN_EVERY else ""

    def plain_round(self) -> None:
        self.rest = max(self.rest - 1, 0)
        self.since_plain = 0


@dataclass(slots=True)
class Budget:
    """Seconds that probing a drafter which does not seem to pay may still lose."""

    left: float = START_S

    def earn(self, seconds: float) -> None:
        self.left = min(self.left + SHARE * seconds, MOST_S)

    def covers(self, loss: float) -> bool:
        """Takes the loss from what is left, if it is enough."""
        if loss > self.left:
            return False
        self.left -= max(loss, 0.0)
        return True


@dataclass(slots=True)
class Use:
    """Whether asking a drafter is worth the time that it takes, whatever it answers.

    gain: tokens that an answer brings beyond what drafters before it bring anyway. known: answers behind it, and its
    prior. rests, asks, credit: of this round.
    """

    gain: float = ASKED
    known: float = ASKED_PRIOR
    rests: bool = False
    asks: int = 0
    credit: float = 0.0

    def settle(self) -> None:
        """Of a round in which it was asked."""
        self.known = max(min(self.known + self.asks, ASKS), self.asks)
        self.gain += self.asks / self.known * (self.credit / self.asks - self.gain)
        self.asks, self.credit = 0, 0.0


@dataclass(slots=True)
class Pace:
    """How many times plain speed the rounds of late ran at, drafting or not; 1 before anything is known."""

    tokens: float = 10.0
    time: float = 10.0

    @property
    def value(self) -> float:
        return self.tokens / self.time

    def learn(self, tokens: float, time: float) -> None:
        """One round: tokens a sequence, and its time in units of the plain round."""
        self.tokens += tokens - self.tokens / PACE_MEMORY
        self.time += time - self.time / PACE_MEMORY
