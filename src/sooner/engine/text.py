"""From committed tokens to text: pieces for streaming, and stop strings that may straddle tokens and rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Detokenizer(Protocol):
    """Turns token ids into text piece by piece; never gives out a broken character (models/tokenizer.py has one)."""

    def push(self, token: int) -> str: ...
    def flush(self) -> str: ...


class TextState:
    """One sequence's text. `push` a committed token, `take` what may be shown, `finish` when the sequence ends.

    Text that could be the beginning of a stop string is held back until the next tokens decide.
    """

    def __init__(self, detokenizer: Detokenizer, stops: Sequence[str] = (), include_stop: bool = False) -> None:
        self._detokenizer = detokenizer
        self._stops = tuple(stops)
        self._include_stop = include_stop
        self._shown = 0
        self._safe = 0
        self.text = ""
        self.stopped = False

    def push(self, token: int, may_stop: bool = True) -> bool:
        """Adds a token; True when a stop string completes with it, and the text then ends there."""
        return self._append(self._detokenizer.push(token), may_stop)

    def finish(self) -> None:
        """No token follows: characters that never completed come out as replacement characters."""
        if not self.stopped:
            self._append(self._detokenizer.flush(), may_stop=True)
            self._safe = len(self.text)

    def take(self) -> str:
        """Text that has become certain since the last call."""
        piece = self.text[self._shown : self._safe]
        self._shown = self._safe
        return piece

    def _append(self, piece: str, may_stop: bool) -> bool:
        longest = max(map(len, self._stops), default=0)
        search_from = max(len(self.text) - longest + 1, 0)
        self.text += piece
        found = [(at, stop) for stop in self._stops if (at := self.text.find(stop, search_from)) >= 0]
        if found and may_stop:
            at, stop = min(found)
            self.text = self.text[: at + len(stop) if self._include_stop else at]
            self._safe, self.stopped = len(self.text), True
            return True
        self._safe = len(self.text) - self._undecided()
        return False

    def _undecided(self) -> int:
        """Length of the longest end of the text that is the beginning of a stop string."""
        return max(
            (n for stop in self._stops for n in range(1, len(stop)) if self.text.endswith(stop[:n])),
            default=0,
        )
