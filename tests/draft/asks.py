"""Asks without an engine."""

from __future__ import annotations

from collections.abc import Sequence

from sooner.draft.protocol import Ask
from sooner.types import Ledger, Request, SamplingParams


def ask(tokens: Sequence[int], limit: int = 3, key: int = 0) -> Ask:
    request = Request(f"r{key}", tuple(tokens), SamplingParams(temperature=0.0), seed=0, seeded=True)
    return Ask(key, request, Ledger(list(tokens), len(tokens)), limit, "match")
