"""What drafters that copy from the ledger share: an index for each sequence, caught up by absolute length."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from sooner.draft.protocol import Ask
from sooner.types import Draft, Ledger


class Index(Protocol):
    """What is known of the first `length` tokens of one ledger. It only grows, as the ledger does."""

    length: int

    def extend(self, tokens: list[int]) -> None:
        """Reads tokens[length:]; the tokens before them are those that were read already."""
        ...


IndexT = TypeVar("IndexT", bound=Index)


class LookupDrafter(ABC, Generic[IndexT]):
    """Implements `protocol.Drafter` for proposals that are a function of one sequence's index.

    An index holds committed tokens only, so a rejection needs no rollback. It is caught up when the sequence drafts:
    one that never does costs nothing.
    """

    name: str
    samples = False

    def __init__(self) -> None:
        self._indices: dict[int, IndexT] = {}

    @abstractmethod
    def new_index(self, ask: Ask) -> IndexT:
        """The index of a sequence that asks for the first time."""

    @abstractmethod
    def copy(self, index: IndexT, ask: Ask) -> Sequence[int]:
        """At most ask.limit tokens to propose; the index has read the whole ledger."""

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [self.draft(ask) for ask in asks]

    def draft(self, ask: Ask) -> Draft:
        return Draft.chain(until_stop(self.copy(self.index_of(ask), ask), ask))

    def index_of(self, ask: Ask) -> IndexT:
        """The index of the ask's sequence, caught up with its ledger."""
        index = self._indices.get(ask.key)
        if index is None:
            index = self._indices[ask.key] = self.new_index(ask)
        index.extend(ask.ledger.tokens)
        return index

    def commit(self, key: int, ledger: Ledger) -> None:
        """Nothing to cut back."""

    def cached(self, key: int) -> int:
        index = self._indices.get(key)
        return index.length if index is not None else 0

    def forget(self, key: int) -> None:
        self._indices.pop(key, None)


def until_stop(tokens: Sequence[int], ask: Ask) -> Sequence[int]:
    """Cuts a proposal after the first token that would end the request: whatever follows it could never be used."""
    stops = ask.request.stop_ids
    return next((tokens[: i + 1] for i, token in enumerate(tokens) if token in stops), tokens)
