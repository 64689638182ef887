"""A smaller model as the drafter: `model:PATH`, or `model:self/N`, the target's own first N layers.

Its cache is caught up with the ledger by absolute length before it proposes, and cut back to what agrees with the
ledger after each commit. How it draws, draft/growth.py says; the rows of a tree lie in the cache in the order in which
they were read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sooner.cache.paged import Table, pages_for
from sooner.draft.growth import Drawing
from sooner.draft.protocol import Ask
from sooner.errors import InputError
from sooner.models.build import build_decoder
from sooner.models.checkpoint import naming, open_checkpoint
from sooner.models.decoder import Decoder
from sooner.models.locate import find_model
from sooner.models.runner import F32, Span, forward
from sooner.models.tokenizer import Tokenizer
from sooner.types import EMPTY, Draft, Ledger

SELF = "self/"
CATCH_UP_ROWS = 512  # rows of one catch-up pass: bounds its memory


@dataclass(slots=True)
class State:
    """One sequence's cache, and what it holds from position `start` on: guesses, in the order in which it read them."""

    table: Table = field(default_factory=Table)
    start: int = 0
    guesses: Draft = EMPTY


class ModelDrafter:
    """Implements `protocol.Drafter`. vocabulary is the target's size: ids from there on are never proposed."""

    samples = True
    trees = True

    def __init__(self, name: str, decoder: Decoder, vocabulary: int, cache_pages: int, weight_bytes: int = 0) -> None:
        """weight_bytes: that the draft has beside the target's."""
        self.name, self.weight_bytes = name, weight_bytes
        self._decoder = decoder
        self._vocabulary = vocabulary
        self._cache = decoder.new_cache(cache_pages)
        self._states: dict[int, State] = {}

    @property
    def token_bytes(self) -> int:
        return self._cache.token_bytes

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """Drafts all asks in step: one pass of the draft model for each token that is given children."""
        works = [Work(ask, self._state(ask), self._fits(ask)) for ask in asks]
        active = [work for work in works if work.growth.next()]
        logits = self._catch_up(active)
        while active:
            for work, row in zip(active, logits):
                work.extend(self._fit_row(row), self._decoder.kernels.choose)
            active = [work for work in active if work.growth.next()]
            spans = [work.next_span(work.state.table) for work in active]
            logits = [rows[0] for rows in forward(self._decoder, self._cache, spans)] if spans else []
        for work in works:
            work.state.start, work.state.guesses = len(work.ask.ledger), work.growth.read
        return [work.growth.draft for work in works]

    def commit(self, key: int, ledger: Ledger) -> None:
        if state := self._states.get(key):
            path = state.guesses.follow(ledger.tokens[state.start :])
            if state.guesses:
                self._cache.keep(state.table, state.start, path)
            # The last token is read again even where it was guessed right: the next draft begins with its logits.
            confirmed = min(state.table.length, state.start + len(path), len(ledger) - 1)
            self._cache.truncate(state.table, confirmed)
            self._cache.publish(state.table, ledger.tokens)
            state.start, state.guesses = len(ledger), EMPTY

    def cached(self, key: int) -> int:
        state = self._states.get(key)
        return state.table.length if state else 0

    def forget(self, key: int) -> None:
        if state := self._states.pop(key, None):
            self._cache.release(state.table)

    def _state(self, ask: Ask) -> State:
        """The sequence's state; a new one begins with what the cache knows of its prefix."""
        if ask.key not in self._states:
            self._states[ask.key] = State()
            self._cache.adopt(self._states[ask.key].table, ask.ledger.tokens)
        return self._states[ask.key]

    def _fits(self, ask: Ask) -> int:
        """How many tokens may be drafted before the draft model's own context is full; none after a token that its
        smaller vocabulary lacks."""
        unread = ask.ledger.tokens[self.cached(ask.key) :]
        if max(unread, default=0) >= self._decoder.config.vocabulary:
            return 0
        return min(ask.limit, self._decoder.config.context - len(ask.ledger) + 1)

    def _catch_up(self, works: Sequence[Work]) -> list[F32]:
        """Reads the ledger tokens that the cache lacks; the logits [V] after the ledger's last token, a work."""
        logits: dict[int, F32] = {}
        while behind := [work for work in works if work.ask.key not in logits]:
            chunk = max(CATCH_UP_ROWS // len(behind), 1)
            spans = [work.span(chunk) for work in behind]
            for work, rows in zip(behind, forward(self._decoder, self._cache, spans)):
                if len(rows):
                    logits[work.ask.key] = rows[0]
        return [logits[work.ask.key] for work in works]

    def _fit_row(self, row: F32) -> F32:
        """A row over the draft's vocabulary as one over the target's: padding cut off, or missing ids impossible."""
        missing = self._vocabulary - len(row)
        return row[: self._vocabulary] if missing <= 0 else np.pad(row, (0, missing), constant_values=-np.inf)


class Work(Drawing):
    """One ask while it is being drafted."""

    def __init__(self, ask: Ask, state: State, limit: int) -> None:
        super().__init__(ask, limit)
        self.state = state

    def span(self, chunk: int) -> Span:
        start, end = self.state.table.length, len(self.ask.ledger)
        stop = min(start + chunk, end)
        return Span(self.state.table, self.ask.ledger.tokens[start:stop], wants=int(stop == end))


def load_model_drafter(
    spec: str, target: Decoder, tokenizer: Tokenizer, cache_tokens: int, weights: str = "auto"
) -> ModelDrafter:
    """`model:self/N`, or `model:` and what `find_model` takes. The draft's tokens must mean what the target's mean."""
    place, added = spec.removeprefix("model:"), 0
    if place.startswith(SELF):
        decoder = target.first_layers(_layer_count(spec, place.removeprefix(SELF), len(target.layers)))
    else:
        checkpoint = open_checkpoint(find_model(place))
        check_vocabulary(spec, tokenizer, checkpoint.tokenizer)
        with naming(checkpoint.path):
            decoder = build_decoder(checkpoint.config, checkpoint.tensors, target.kernels, target.device, weights)
        added = decoder.nbytes
    return ModelDrafter(spec, decoder, target.config.vocabulary, pages_for(cache_tokens), added)


def _layer_count(spec: str, text: str, layers: int) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= layers:
        raise InputError(f"drafter {spec!r}: {text!r} must be a number of layers from 1 to the target's {layers}")
    return int(text)


def check_vocabulary(spec: str, target: Tokenizer, draft: Tokenizer) -> None:
    """Refuses a draft whose tokens mean something else; padding beyond the real tokens does not matter."""
    if (difference := target.first_difference(draft)) is not None:
        token, mine, theirs = difference
        raise InputError(
            f"drafter {spec!r}: token {token} is {mine!r} in the target's vocabulary of {target.vocabulary} and "
            f"{theirs!r} in the draft's of {draft.vocabulary}; use a draft model of the same tokenizer"
        )
