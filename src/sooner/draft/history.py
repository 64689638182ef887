"""Shared history: drafts what other requests' answers went on with after the same few tokens.

Useful where many requests are alike. It is off unless switched on (`--shared-history`), because drafts that come
from someone else's answer let a client guess from response times what others were answered.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import mul

from sooner.draft.lookup import LookupDrafter
from sooner.draft.protocol import Ask
from sooner.errors import InputError
from sooner.types import Ledger

CONTEXT = 4  # tokens that have to agree
DOUBT = 2.0  # agreeing tokens at which the next one is right every other time

Context = tuple[str, *tuple[int, ...]]  # the history's name, then CONTEXT tokens


class Answers:
    """After CONTEXT tokens, the token that came next most recently. `most` contexts are kept, the latest."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._next: OrderedDict[Context, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._next)

    def note(self, context: Context, token: int) -> None:
        self._next[context] = token
        self._next.move_to_end(context)
        if len(self._next) > self._most:
            self._next.popitem(last=False)

    def follow(self, name: str, tokens: Sequence[int], limit: int) -> list[int]:
        """At most `limit` tokens, each the next one after those before it."""
        window = list(tokens[-CONTEXT:])
        known = len(window)
        for _ in range(limit):
            token = self._next.get((name, *window[-CONTEXT:]))
            if token is None:
                break
            window.append(token)
        return window[known:]


class Reader:
    """How far one sequence's answer has been noted; without a name nothing is."""

    def __init__(self, answers: Answers, name: str, prompt_length: int) -> None:
        self.length = prompt_length
        self._answers, self._name = answers, name

    def extend(self, tokens: list[int]) -> None:
        if self._name:
            for end in range(max(self.length, CONTEXT), len(tokens)):
                self._answers.note((self._name, *tokens[end - CONTEXT : end]), tokens[end])
        self.length = len(tokens)


class HistoryDrafter(LookupDrafter[Reader]):
    """For requests with a `history`: those of the same name draft from one another's answers, and from nobody else's.

    most: contexts that are remembered, of all names together; each takes about 350 bytes.
    """

    name = "history"

    def __init__(self, most: int = 100_000) -> None:
        super().__init__()
        if most < 1:
            raise InputError(f"most is {most}, must be at least 1")
        self._answers = Answers(most)

    def new_index(self, ask: Ask) -> Reader:
        return Reader(self._answers, ask.request.history, len(ask.request.prompt))

    def copy(self, index: Reader, ask: Ask) -> Sequence[int]:  # noqa: ARG002
        return self._answers.follow(ask.request.history, ask.ledger.tokens, ask.limit) if ask.request.history else ()

    def estimate(self, ask: Ask) -> Iterator[float]:
        """For each token that would be proposed: the estimated chance that it and all before it are accepted."""
        tokens = len(self.copy(self.index_of(ask), ask))
        return accumulate((m / (m + DOUBT) for m in range(CONTEXT, CONTEXT + tokens)), mul)

    def commit(self, key: int, ledger: Ledger) -> None:
        """The end of an answer is worth knowing too, and nobody asks after it."""
        if index := self._indices.get(key):
            index.extend(ledger.tokens)
