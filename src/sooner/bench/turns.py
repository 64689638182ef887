"""Two engines over one target that play their rounds in turns, so that both see the same machine at every moment.

Whole runs one after the other differ by several percent where the machine is shared, even plain ones. Here whoever has
used less time plays the next round, and each has a clock that stands still while the other plays.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from sooner.engine.engine import Engine, Progress
from sooner.engine.stats import Stats
from sooner.errors import InputError
from sooner.llm import LLM
from sooner.types import SamplingParams

T = TypeVar("T")


@dataclass(slots=True)
class Asked:
    """One request as its client saw it. Seconds count from the moment when it was sent, on its side's clock.

    first_s, first_tokens: until its first tokens came, and how many they were.
    """

    prompt: int
    sent: float
    first_s: float = 0.0
    first_tokens: int = 0
    total_s: float = 0.0
    token_ids: list[int] = field(default_factory=list)
    stats: Stats = field(default_factory=Stats)

    @property
    def decode_s(self) -> float:
        return self.total_s - self.first_s

    @property
    def decode_tokens(self) -> int:
        return len(self.token_ids) - self.first_tokens


class Side:
    """`level` clients in a closed loop at one engine: each sends the next prompt as soon as it has its answer.

    seconds: of its own turns. done: the answers, in the order in which they were complete. full_s, full_tokens: of the
    rounds in which every client's answer was under way: no prompt was read, and no place was empty as at the end, where
    equal answers end together and drafted ones do not.
    """

    def __init__(
        self, llm: LLM, engine: Engine, prompts: Sequence[list[int]], params: SamplingParams, level: int = 1
    ) -> None:
        self.seconds, self.done = 0.0, list[Asked]()
        self.full_s, self.full_tokens = 0.0, 0
        self._llm, self._engine, self._params, self._level = llm, engine, params, level
        self._prompts, self._waiting = prompts, deque(range(len(prompts)))
        self._flying: dict[str, Asked] = {}

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._flying)

    def step(self) -> None:
        """One round."""
        began = time.perf_counter()
        while self._waiting and len(self._flying) < self._level:
            number = self._waiting.popleft()
            drafts = self._engine is self._llm.engine
            [request] = self._llm.requests(self._prompts[number], self._params, drafts)
            self._engine.add(request)
            self._flying[request.id] = Asked(number, self.seconds + time.perf_counter() - began)
        full = len(self._flying) == self._level and all(one.token_ids for one in self._flying.values())
        tokens = sum(self._hear(news, self.seconds + time.perf_counter() - began) for news in self._engine.step())
        took = time.perf_counter() - began
        self.seconds += took
        if full:
            self.full_s, self.full_tokens = self.full_s + took, self.full_tokens + tokens

    def _hear(self, news: Progress, now: float) -> int:
        """What a round brought one client; its new tokens."""
        one = self._flying[news.request_id]
        if news.error or news.stats.drafter_error:
            raise InputError(news.error or news.stats.drafter_error)
        if news.pieces and not one.token_ids:
            one.first_s, one.first_tokens = now - one.sent, len(news.pieces)
        one.token_ids += [piece.token for piece in news.pieces]
        if news.finish_reason:
            one.total_s, one.stats = now - one.sent, news.stats
            self.done.append(self._flying.pop(news.request_id))
        return len(news.pieces)


def race(first: Side, second: Side) -> None:
    """Plays both to their ends; whoever has used less time comes next."""
    while first.busy or second.busy:
        behind, other = (first, second) if first.seconds <= second.seconds else (second, first)
        (behind if behind.busy else other).step()


def play_pair(
    llm: LLM,
    plain_engine: Engine,
    prompts: Sequence[list[int]],
    params: SamplingParams,
    level: int = 1,
    plain_first: bool = True,
) -> tuple[Side, Side]:
    """The prompts answered plainly by the one engine, and with the drafts of `llm`, in turns."""
    plain, drafted = Side(llm, plain_engine, prompts, params, level), Side(llm, llm.engine, prompts, params, level)
    race(*((plain, drafted) if plain_first else (drafted, plain)))
    for side in (plain, drafted):
        side.done.sort(key=lambda one: one.prompt)
    return plain, drafted


def filling(prompts: Sequence[T], places: int, times: int) -> list[T]:
    """All prompts, and over again until they fill the places so many times."""
    count = max(times * places, len(prompts))
    return [prompts[i % len(prompts)] for i in range(count)]


def warm_up(llm: LLM, plain_engine: Engine, ids: Sequence[list[int]]) -> None:
    """The first passes are slow."""
    play_pair(llm, plain_engine, ids[:2], SamplingParams(temperature=0.0, max_tokens=8), 2)
