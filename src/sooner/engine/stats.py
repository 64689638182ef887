"""What happened, counted once: every number about acceptance and speed that Sooner shows comes from here."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from sooner.types import RoundRecord

REASONS = ("drafter_error", "plain_reason")


@dataclass(slots=True)
class Stats:
    """Sums over rounds. The pass that completes the prompt commits the first token and is kept apart as prefill.

    acceptance rate: accepted / drafted. Acceptance by position i: of the rounds that drafted more than i tokens in a
    row, the share that accepted more than i. tokens a round: committed / rounds, the correction or bonus included.
    Tokens that a stopping rule dropped are neither accepted nor committed.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0  # of the prompt (after a preemption: of the ledger), found in the prefix cache
    prefill_tokens: int = 0  # committed by the prefill pass: 1, or 0 where nothing was generated
    prefill_s: float = 0.0
    rounds: int = 0
    committed: int = 0
    drafted: int = 0
    accepted: int = 0
    draft_s: float = 0.0
    target_s: float = 0.0
    verify_s: float = 0.0
    commit_s: float = 0.0
    drafted_by_length: Counter[int] = field(default_factory=Counter)
    accepted_by_length: Counter[int] = field(default_factory=Counter)
    drafter_error: str = ""  # why drafting was switched off, if a drafter failed
    plain_reason: str = ""  # why the last round without a draft had none

    def add(self, record: RoundRecord) -> None:
        self.rounds += 1
        self.committed += len(record.committed)
        self.drafted += len(record.draft)
        self.accepted += record.accepted
        self.drafted_by_length[record.depth] += 1
        self.accepted_by_length[record.accepted] += 1
        self.draft_s += record.draft_s
        self.target_s += record.target_s
        self.verify_s += record.verify_s
        self.commit_s += record.commit_s
        self.plain_reason = self.plain_reason if record.draft else record.reason

    def add_prefill(self, record: RoundRecord) -> None:
        self.prefill_tokens += len(record.committed)
        self.prefill_s += record.target_s + record.verify_s + record.commit_s

    def merge(self, other: Stats) -> None:
        for name in self.__slots__:
            mine, theirs = getattr(self, name), getattr(other, name)
            setattr(self, name, mine or theirs if name in REASONS else mine + theirs)

    @property
    def decode_s(self) -> float:
        return self.draft_s + self.target_s + self.verify_s + self.commit_s

    @property
    def output_tokens(self) -> int:
        return self.prefill_tokens + self.committed

    @property
    def tokens_per_second(self) -> float | None:
        """Decoding alone, prefill left out."""
        return self.committed / self.decode_s if self.decode_s else None

    @property
    def tokens_per_round(self) -> float | None:
        return self.committed / self.rounds if self.rounds else None

    @property
    def acceptance_rate(self) -> float | None:
        return self.accepted / self.drafted if self.drafted else None

    @property
    def acceptance_by_position(self) -> list[float]:
        def reached(counts: Counter[int], i: int) -> int:
            return sum(count for length, count in counts.items() if length > i)

        longest = max(self.drafted_by_length, default=0)
        return [reached(self.accepted_by_length, i) / reached(self.drafted_by_length, i) for i in range(longest)]

    def as_dict(self) -> dict[str, object]:
        """For JSON: raw counts and the figures derived from them."""
        raw = {
            name: getattr(self, name)
            for name in self.__slots__
            if name not in ("drafted_by_length", "accepted_by_length", *REASONS)
        }
        derived = {
            "output_tokens": self.output_tokens,
            "decode_s": self.decode_s,
            "tokens_per_second": self.tokens_per_second,
            "tokens_per_round": self.tokens_per_round,
            "acceptance_rate": self.acceptance_rate,
            "acceptance_by_position": self.acceptance_by_position,
        }
        return raw | derived | ({"drafter_error": self.drafter_error} if self.drafter_error else {})
