"""Drafters that look over another's shoulder: they pass everything on, and check what goes by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import numpy as np

from sooner.certify.rows import Rows
from sooner.draft.model import ModelDrafter
from sooner.draft.protocol import Ask, Drafter, Features, branches
from sooner.models.decoder import Decoder
from sooner.models.runner import states
from sooner.types import Draft, Ledger
from sooner.verify.rejection import proposal

EVERY = 8  # drafts between two questions to the same drafter without a past

_keys = count(1 << 41)  # of sequences that exist for a drafter alone


class Relay:
    """Passes everything on."""

    def __init__(self, inner: Drafter) -> None:
        self.name, self.samples, self.trees = inner.name, inner.samples, branches(inner)
        self.inner = inner
        if isinstance(inner, Features):
            self.taps, self.adopt, self.observe = inner.taps, inner.adopt, inner.observe

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return self.inner.propose(asks)

    def commit(self, key: int, ledger: Ledger) -> None:
        self.inner.commit(key, ledger)

    def cached(self, key: int) -> int:
        return self.inner.cached(key)

    def forget(self, key: int) -> None:
        self.inner.forget(key)


class Recorder(Relay):
    """Compares the q of every drafted token, or its certainty, with the recorded row of its prefix."""

    def __init__(self, inner: Drafter, rows: Rows) -> None:
        super().__init__(inner)
        self._rows = rows
        self.compared = 0
        self.largest = 0.0  # difference of a probability

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        drafts = self.inner.propose(asks)
        for ask, draft in zip(asks, drafts, strict=True):
            start = tuple(ask.ledger.output)
            for node in range(len(draft)):
                known = self._rows.q.get(start + tuple(draft.tokens[n] for n in draft.ancestors(draft.parents[node])))
                if known is not None:
                    self.compared += 1
                    difference = np.abs(proposal(draft, node, len(known)) - known)
                    self.largest = max(self.largest, float(difference.max()))
        return drafts


class Watched(Relay):
    """Looks at the drafter's cache after each round, and now and then at whether its past changes what it proposes.

    What should hold and does not is put into words in `faults`. compares: whether a draft's bits depend on the ledger
    alone, as they do where kernels promise equal bits and in lookups.
    """

    def __init__(self, inner: Drafter, compares: bool, target: Decoder) -> None:
        super().__init__(inner)
        self._compares, self._target = compares, target
        self._drafted: dict[int, tuple[int, Draft]] = {}
        self.rounds = 0
        self.compared = 0
        self.faults: list[str] = []

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        drafts = self.inner.propose(asks)
        for ask, draft in zip(asks, drafts, strict=True):
            self._drafted[ask.key] = len(ask.ledger), draft
            self.rounds += 1
            if self._compares and self.rounds % EVERY == 0:
                self._compare(ask, draft)
        return drafts

    def _compare(self, ask: Ask, draft: Draft) -> None:
        fresh = replace(ask, key=next(_keys))
        if isinstance(self.inner, Features):
            tokens = ask.ledger.tokens
            self.inner.observe(fresh.key, tokens, 0, states(self._target, tokens[:-1], self.inner.taps))
        [alone] = self.inner.propose([fresh])
        self.inner.forget(fresh.key)
        self.compared += 1
        if (alone.tokens, alone.parents) != (draft.tokens, draft.parents):
            where = f"after {len(ask.ledger)} tokens"
            self.faults.append(f"{where} it proposes {draft.tokens}, without a past {alone.tokens}")

    def commit(self, key: int, ledger: Ledger) -> None:
        self.inner.commit(key, ledger)
        if key not in self._drafted:
            return
        start, draft = self._drafted.pop(key)
        low, high = self._covers(start, draft, ledger)
        cached = self.inner.cached(key)
        if not low <= cached <= high:
            where = f"after a round from {start} to {len(ledger)}"
            self.faults.append(f"{where} its cache covers {cached}, not {low}..{high}")

    def _covers(self, start: int, draft: Draft, ledger: Ledger) -> tuple[int, int]:
        """A model that drafts chains has read all its proposals but the last, and keeps what was accepted. Others
        may cover less of the round, or nothing where they hold no state; never more than the ledger."""
        if not isinstance(self.inner, ModelDrafter) or not len(draft):
            return 0, len(ledger)
        agreed = next((i for i, (a, b) in enumerate(zip(draft.tokens, ledger.tokens[start:])) if a != b), len(draft))
        kept = start + min(agreed, len(draft) - 1, len(ledger) - start)
        return kept, kept
