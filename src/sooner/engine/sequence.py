"""A request in flight."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Container
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from sooner.cache.paged import Table
from sooner.engine.stats import Stats
from sooner.engine.text import TextState
from sooner.sampling.logprobs import logprob
from sooner.sampling.noise import Noise
from sooner.sampling.road import F32, Road
from sooner.types import FinishReason, Kind, Ledger, Logprob, Request, RoundRecord

Origin = Kind | str  # "accepted", "correction" or "bonus"


@dataclass(frozen=True, slots=True)
class Piece:
    """A committed token, the text that became certain with it (often none or several tokens' worth), its origin."""

    token: int
    text: str
    origin: Origin
    logprob: Logprob | None = None


@dataclass(slots=True, eq=False)
class Sequence:
    """The ledger is the truth; `table` says how much of it the target's cache covers, and never more."""

    key: int
    request: Request
    ledger: Ledger
    road: Road
    noise: Noise
    text: TextState | None = None
    table: Table = field(default_factory=Table)
    stats: Stats = field(default_factory=Stats)
    finish_reason: FinishReason | None = None
    error: str = ""
    drafting: bool = True  # False once a drafter has failed
    prompt_logprobs: list[Logprob | None] = field(default_factory=list)
    new_pieces: list[Piece] = field(default_factory=list)
    trace: Callable[[RoundRecord], None] | None = None

    @classmethod
    def of(cls, key: int, request: Request, text: TextState | None) -> Sequence:
        ledger = Ledger(list(request.prompt), len(request.prompt))
        stats = Stats(prompt_tokens=len(request.prompt))
        return cls(key, request, ledger, Road.of(request), Noise(request.seed, request.sample), text, stats=stats)

    @property
    def remaining(self) -> int:
        return self.request.max_tokens - self.ledger.output_length

    @property
    def tail(self) -> int:
        """How many ledger tokens the cache does not cover; the last one is always among them."""
        return len(self.ledger) - self.table.length

    def reading(self, readers: Container[str]) -> list[str]:
        """Which of the request's drafters read the target's features."""
        return [name for name in self.request.speculation.drafters if name in readers] if self.drafting else []

    def score_prompt(self, rows: F32) -> None:
        """rows [n, V]: the logits that predicted the next n prompt tokens; the first token has no prediction."""
        top, prompt = self.request.params.prompt_logprobs, self.request.prompt
        assert top is not None
        self.prompt_logprobs = self.prompt_logprobs or [None]
        known = len(self.prompt_logprobs)
        self.prompt_logprobs += [
            logprob(row, token, top) for row, token in zip(rows, prompt[known : known + len(rows)])
        ]

    def note(self, record: RoundRecord, prefill: bool) -> None:
        """Counts a round, or a pass that belonged to the prompt."""
        if prefill:
            self.stats.add_prefill(record)
        else:
            self.stats.add(record)
        if self.trace:
            self.trace(record)


def switch_off(name: str, sequences: Seq[Sequence], error: Exception) -> None:
    """A drafter failed: these sequences go on without drafts, and say why."""
    for sequence in sequences:
        sequence.drafting = False
        sequence.stats.drafter_error = f"drafter {name!r} failed and was switched off: {error}"
    warnings.warn(sequences[0].stats.drafter_error, RuntimeWarning, stacklevel=2)
