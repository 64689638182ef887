"""Predicted outputs: drafts the text that a request expects, and finds its place in it again after an edit.

The OpenAI interface has the idea: whoever asks for a changed file knows most of the answer. Nothing is believed: the
prediction is verified like any other draft.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import mul

from sooner.draft.lookup import LookupDrafter
from sooner.draft.protocol import Ask

LONGEST = 3  # tokens of the output that are looked for in the prediction, most first
NEAR = 16  # tokens ahead within which a single token is enough
DOUBT = 2.0  # matching tokens at which the next one is right every other time
TRUST = 8  # matching tokens that a prediction is worth before it was tried


class Follower:
    """Where in the prediction the output is. `place` is the token expected next, `matched` how many fitted in a row.

    With matched 0 the place is lost; it is then where the output left the prediction.
    """

    def __init__(self, prediction: Sequence[int], prompt_length: int) -> None:
        self.length = prompt_length
        self.prediction = prediction
        self.place, self.matched = 0, TRUST
        self._after: dict[tuple[int, ...], list[int]] = defaultdict(list)  # where each n-gram's continuation is
        for n in range(1, LONGEST + 1):
            for start in range(len(prediction) - n):
                self._after[tuple(prediction[start : start + n])].append(start + n)

    def extend(self, tokens: list[int]) -> None:
        for end in range(self.length + 1, len(tokens) + 1):
            if self.matched and self.prediction[self.place : self.place + 1] == (tokens[end - 1],):
                self.place, self.matched = self.place + 1, self.matched + 1
            else:
                self.place, self.matched = self._find(tokens, end)
        self.length = len(tokens)

    def _find(self, tokens: list[int], end: int) -> tuple[int, int]:
        """The nearest place after the longest run that ends the output, ahead rather than behind."""
        for n in range(min(LONGEST, end), 0, -1):
            places = self._after.get(tuple(tokens[end - n : end]), [])
            if n == 1:
                places = [place for place in places if self.place < place <= self.place + NEAR]
            if places:
                return min(places, key=lambda place: (place <= self.place, abs(place - self.place))), n
        return self.place, 0


class PredictionDrafter(LookupDrafter[Follower]):
    """Follows `Request.prediction`; proposes nothing without one, and while it has lost its place."""

    name = "prediction"

    def new_index(self, ask: Ask) -> Follower:
        return Follower(ask.request.prediction, len(ask.request.prompt))

    def copy(self, index: Follower, ask: Ask) -> Sequence[int]:
        return index.prediction[index.place : index.place + ask.limit] if index.matched else ()

    def estimate(self, ask: Ask) -> Iterator[float]:
        """For each token that would be proposed: the estimated chance that it and all before it are accepted.

        After m tokens that fitted the next one does with chance m / (m + DOUBT).
        """
        index = self.index_of(ask)
        tokens = len(self.copy(index, ask))
        return accumulate((m / (m + DOUBT) for m in range(index.matched, index.matched + tokens)), mul)
