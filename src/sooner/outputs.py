"""What `LLM` returns."""

from __future__ import annotations

from dataclasses import dataclass, field

from sooner.engine.engine import Progress
from sooner.engine.sequence import Piece
from sooner.engine.stats import Stats
from sooner.types import FinishReason, Logprob


@dataclass(slots=True)
class Completion:
    """One sample of one prompt. error is set where finish_reason is "error"."""

    index: int
    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    finish_reason: FinishReason | None = None
    stats: Stats = field(default_factory=Stats)
    error: str = ""
    logprobs: list[Logprob] = field(default_factory=list)  # one a committed token, where they were asked for
    prompt_logprobs: list[Logprob | None] = field(default_factory=list)  # one a prompt token, None for the first

    def grow(self, progress: Progress) -> Event:
        """Takes in what a step added, and tells it."""
        ids = tuple(piece.token for piece in progress.pieces)
        text = "".join(piece.text for piece in progress.pieces)
        self.token_ids += ids
        self.text += text
        self.logprobs += [piece.logprob for piece in progress.pieces if piece.logprob]
        self.prompt_logprobs = list(progress.prompt_logprobs)
        self.finish_reason, self.error, self.stats = progress.finish_reason, progress.error, progress.stats
        return Event(self.index, text, ids, progress.pieces, self.finish_reason, self)


@dataclass(slots=True)
class Output:
    """One prompt's answer; with n > 1 there are several completions, and the properties are those of the first."""

    prompt_token_ids: list[int]
    outputs: list[Completion]
    seed: int

    @property
    def text(self) -> str:
        return self.outputs[0].text

    @property
    def token_ids(self) -> list[int]:
        return self.outputs[0].token_ids

    @property
    def finish_reason(self) -> FinishReason | None:
        return self.outputs[0].finish_reason

    @property
    def stats(self) -> Stats:
        return self.outputs[0].stats


@dataclass(frozen=True, slots=True)
class Event:
    """One step's news of one completion. `completion` grows with every event and is complete with the last."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    pieces: tuple[Piece, ...]
    finish_reason: FinishReason | None
    completion: Completion
