"""What drafters with a head on the target's hidden states share: one layer's cache, read in step with the ledger.

Entry i of a head is made of the target's hidden state at position i, its feature, and of the token at i + 1; it says
what follows that. So with a ledger of L tokens the head has entries 0..L - 2, and the last of them proposes. Later
tokens of a draft are made from the head's own output in place of a feature. Entries that were made so live inside
`propose` alone: before it returns the cache is cut back to what came from the target, so that a rejected token leaves
nothing behind, and there is nothing to count after a commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sooner.cache.paged import PagedCache, Table
from sooner.draft.growth import Drawing
from sooner.draft.protocol import Ask
from sooner.errors import DrafterError
from sooner.kernels.interface import PAGE, Kernels, LayerCache, Packed, Rows
from sooner.models.runner import F32, READ_ROWS, Span, layout
from sooner.types import Draft, Ledger


class Head(Protocol):
    """A head's weights and arithmetic. H is its width, W the target's."""

    @property
    def taps(self) -> tuple[int, ...]: ...

    @property
    def targets(self) -> NDArray[np.int64] | None:
        """Of each output the target's token; None where they are the same."""
        ...

    @property
    def kernels(self) -> Kernels[Any]: ...

    @property
    def matrices(self) -> list[Packed]:
        """Its weights, those that it shares with the target included."""
        ...

    def new_cache(self, pages: int) -> PagedCache: ...

    def fuse(self, features: Tensor) -> Tensor:
        """What a first step is fed: features [R, len(taps), W] -> [R, H]."""
        ...

    def forward(self, hidden: Tensor, rows: Rows, cache: LayerCache, wanted: Tensor) -> tuple[Tensor, Tensor]:
        """hidden [R, H] and the tokens after it -> logits of the rows in `wanted`, and what those rows feed on: [., H].

        The cache gets an entry for each row.
        """
        ...


class Pairs(Sequence[int]):
    """Each token with the next one, as a number: what the entries of a head are made of. Read by slices."""

    def __init__(self, tokens: Sequence[int], vocabulary: int) -> None:
        self._tokens, self._vocabulary = tokens, vocabulary

    def __len__(self) -> int:
        return len(self._tokens)

    def __getitem__(self, index: Any) -> Any:
        some = self._tokens[index.start : index.stop + 1]
        return [a * self._vocabulary + b for a, b in pairwise(some)]


@dataclass(slots=True)
class State:
    """One sequence's entries, and features that wait to be read: [n, taps, W] each, from position table.length on."""

    table: Table = field(default_factory=Table)
    waiting: list[Tensor] = field(default_factory=list)

    @property
    def length(self) -> int:
        return self.table.length + sum(map(len, self.waiting))


class HeadDrafter:
    """Implements `protocol.Drafter` and `protocol.Features` for any `Head`. vocabulary is the target's."""

    samples = True
    trees = True

    def __init__(self, name: str, head: Head, vocabulary: int, cache_pages: int, weight_bytes: int = 0) -> None:
        """weight_bytes: that the head has beside the target's."""
        self.name, self.taps, self.weight_bytes = name, head.taps, weight_bytes
        self._head, self._vocabulary = head, vocabulary
        self._cache = head.new_cache(cache_pages)
        self._wide = np.full(vocabulary, -np.inf, np.float32)
        self._states: dict[int, State] = {}

    @property
    def token_bytes(self) -> int:
        return self._cache.token_bytes

    def adopt(self, key: int, tokens: Sequence[int]) -> int:
        self.forget(key)
        state = self._states[key] = State()
        return self._cache.adopt(state.table, Pairs(tokens, self._vocabulary))

    def observe(self, key: int, tokens: Sequence[int], start: int, features: Tensor) -> None:
        """Keeps the features, and reads them whenever they fill a page, so that it can be shared at once."""
        state = self._states.setdefault(key, State())
        if start > state.length:
            raise DrafterError(f"drafter {self.name!r} saw positions up to {state.length} and then from {start} on")
        if len(fresh := features[state.length - start :]):
            state.waiting.append(fresh)
        if (state.length - 1) // PAGE > state.table.length // PAGE:
            with torch.inference_mode(), self._head.kernels.undisturbed():
                self._read_ahead(state, tokens)

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """Drafts all asks in step: one pass of the head for each token that is given children."""
        with torch.inference_mode(), self._head.kernels.undisturbed():
            return self._propose(asks)

    def _propose(self, asks: Sequence[Ask]) -> list[Draft]:
        works = [Work(ask, self._state_of(ask)) for ask in asks]
        active = [work for work in works if work.growth.next()]
        logits, hidden = self._catch_up(active)
        while active:
            for work, row, made in zip(active, logits, hidden):
                work.made.append(made)
                work.extend(self._widen(row), self._head.kernels.choose)
            active = [work for work in active if work.growth.next()]
            if active:
                fed = torch.stack([work.made[work.growth.parent] for work in active])
                logits, hidden = self._pass([work.next_span(work.state.table) for work in active], fed)
        for work in works:
            self._cache.truncate(work.state.table, len(work.ask.ledger) - 2)
        return [work.growth.draft for work in works]

    def commit(self, key: int, ledger: Ledger) -> None:
        """Nothing to cut back: entries of guesses did not outlive the proposal."""

    def cached(self, key: int) -> int:
        state = self._states.get(key)
        return state.length if state else 0

    def forget(self, key: int) -> None:
        if state := self._states.pop(key, None):
            self._cache.release(state.table)

    def _state_of(self, ask: Ask) -> State:
        state = self._states.get(ask.key)
        if state is None or state.length != len(ask.ledger) - 1:
            seen = state.length if state else 0
            raise DrafterError(f"drafter {self.name!r} saw {seen} positions of a ledger of {len(ask.ledger)} tokens")
        return state

    def _catch_up(self, works: Sequence[Work]) -> tuple[F32, Tensor]:
        """Reads what waits; logits and hidden states after each ledger's last token. That one's feature stays, so that
        the entry can be made again: a ledger may be asked about twice."""
        for work in works:
            if len(work.ask.ledger) - work.state.table.length > READ_ROWS // len(works):
                self._read_ahead(work.state, work.ask.ledger.tokens)
        features = [torch.cat(work.state.waiting) for work in works]
        spans = [Span(work.state.table, work.ask.ledger.tokens[work.state.table.length + 1 :]) for work in works]
        result = self._pass(spans, self._head.fuse(torch.cat(features)))
        for work, mine in zip(works, features):
            work.state.waiting = [mine[-1:]]
        return result

    def _read_ahead(self, state: State, tokens: Sequence[int]) -> None:
        """Reads all features but the last, and publishes the pages that are full."""
        features = torch.cat(state.waiting)
        for part in torch.split(features[:-1], READ_ROWS):
            start = state.table.length + 1
            self._pass([Span(state.table, tokens[start : start + len(part)], wants=0)], self._head.fuse(part))
        state.waiting = [features[-1:]]
        self._cache.publish(state.table, Pairs(tokens, self._vocabulary))

    def _pass(self, spans: Sequence[Span], hidden: Tensor) -> tuple[F32, Tensor]:
        """One pass of the head; a span's tail are the tokens after its rows."""
        ends = [span.table.length + span.rows for span in spans]
        for span, end in zip(spans, ends):
            self._cache.reserve(span.table, end)
        rows, wanted = layout(spans, hidden.device)
        logits, hidden = self._head.forward(hidden, rows, self._cache.layers[0], wanted)
        for span, end in zip(spans, ends):
            self._cache.advance(span.table, end)
        return logits.cpu().numpy(), hidden

    def _widen(self, row: F32) -> F32:
        """A row over the head's vocabulary as one over the target's, where all other tokens are impossible.

        Always the same array: a row is drawn from before the next one is looked at.
        """
        if self._head.targets is None:
            return row
        self._wide[self._head.targets] = row
        return self._wide


class Work(Drawing):
    """One ask while it is being drafted. made: the head's output at each expanded node, which its children feed on."""

    def __init__(self, ask: Ask, state: State) -> None:
        super().__init__(ask, ask.limit)
        self.state = state
        self.made: list[Tensor] = []
