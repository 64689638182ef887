"""Which sequences take part in the next round, and with how many rows of their tail."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from sooner.cache.paged import PagedCache
from sooner.draft.protocol import Features
from sooner.engine.sequence import Sequence, switch_off
from sooner.errors import CapacityError
from sooner.kernels.interface import PAGE


@dataclass(frozen=True, slots=True)
class Turn:
    """A sequence's part in a round: `take` rows of its tail. A chunk that leaves tail behind chooses no token."""

    sequence: Sequence
    take: int
    completes: bool  # whether `take` is all of the tail

    @property
    def prefills(self) -> bool:
        """True until the first token, and again after a preemption: such a pass drafts nothing."""
        return self.take > 1 or not self.completes or self.sequence.ledger.output_length == 0

    @property
    def scores_prompt(self) -> bool:
        """Whether the log-probabilities of these rows' prompt tokens are wanted."""
        return self.sequence.request.params.prompt_logprobs is not None and self.sequence.ledger.output_length == 0

    @classmethod
    def of(cls, sequence: Sequence, budget: int) -> Turn:
        take = min(sequence.tail, budget)
        return cls(sequence, take, completes=take == sequence.tail)


@dataclass(slots=True)
class Scheduler:
    """First come, first served. Sequences that decode go first; prompts fill the row budget that is left, in chunks.

    When pages run out the newest sequence is preempted: its pages are freed, its ledger stays, and it is recomputed
    from there as soon as there is room. The oldest is never preempted, so every request ends.
    """

    cache: PagedCache
    max_rows: int = 512
    max_sequences: int = 64
    prefix_cache: bool = True
    waiting: deque[Sequence] = field(default_factory=deque)
    running: list[Sequence] = field(default_factory=list)
    readers: Mapping[str, Features] = field(default_factory=dict)  # drafters that read the target's features

    def add(self, sequence: Sequence) -> None:
        self.waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        self.cache.release(sequence.table)
        if sequence in self.running:
            self.running.remove(sequence)
        else:
            self.waiting.remove(sequence)

    def schedule(self) -> tuple[list[Turn], list[Sequence]]:
        """The turns of the next round, with their pages reserved, and the sequences preempted to make room."""
        preempted: list[Sequence] = []
        turns = [turn for s in list(self.running) if (turn := self._turn(s, self.max_rows, preempted))]
        turns = [turn for turn in turns if turn.sequence not in preempted]
        budget = self.max_rows - sum(turn.take for turn in turns)
        turns += self._admit(budget) if not preempted else []
        return turns, preempted

    def _turn(self, sequence: Sequence, budget: int, preempted: list[Sequence]) -> Turn | None:
        if sequence in preempted:
            return None
        turn = Turn.of(sequence, budget)
        while not self._reserve(turn):
            victim = self.running[-1]
            self._preempt(victim)
            preempted.append(victim)
            if victim is sequence:
                return None
        return turn

    def _admit(self, budget: int) -> list[Turn]:
        turns: list[Turn] = []
        while self.waiting and budget > 0 and len(self.running) < self.max_sequences:
            if self._prefix_is_coming(self.waiting[0]):
                break
            turn = self._seat(self.waiting[0], budget)
            if turn is None:
                break
            self.running.append(self.waiting.popleft())
            turns.append(turn)
            budget -= turn.take
        return turns

    def _seat(self, sequence: Sequence, budget: int) -> Turn | None:
        """A newcomer's first turn, after what the cache knows of its prefix; None when there is no room for it."""
        if self.prefix_cache and sequence.request.params.prompt_logprobs is None:
            sequence.stats.cached_tokens += self._adopt(sequence)
        turn = Turn.of(sequence, budget)
        if self._reserve(turn):
            return turn
        sequence.stats.cached_tokens -= sequence.table.length
        self.cache.release(sequence.table)
        return None

    def _adopt(self, sequence: Sequence) -> int:
        """Takes over what the cache knows of the ledger, as far as the drafters that read features know it too."""
        tokens = sequence.ledger.tokens
        length = self.cache.adopt(sequence.table, tokens)
        for name in sequence.reading(self.readers):
            try:
                length = min(length, self.readers[name].adopt(sequence.key, tokens))
            except Exception as error:  # whatever a user's drafter raises must not end the text
                switch_off(name, [sequence], error)
        self.cache.truncate(sequence.table, length)
        return length

    def _prefix_is_coming(self, sequence: Sequence) -> bool:
        """Whether the same prompt's pages are being read right now: another sample of it had better wait for them."""
        prompt = sequence.request.prompt
        shared = (len(prompt) - 1) // PAGE * PAGE  # what `adopt` can give of it
        return self.prefix_cache and any(
            other.request.prompt == prompt and other.table.length < shared for other in self.running
        )

    def _reserve(self, turn: Turn) -> bool:
        sequence = turn.sequence
        drafted = max(min(sequence.request.speculation.longest, sequence.remaining - 1), 0)
        try:
            self.cache.reserve(sequence.table, sequence.table.length + turn.take + drafted)
        except CapacityError:
            return False
        return True

    def _preempt(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self.cache.release(sequence.table)
        self.waiting.appendleft(sequence)
