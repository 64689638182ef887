"""Where two answers part: how near the target's choice was, and what the two passes made of the same row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from sooner.cache.paged import Table, pages_for
from sooner.certify.subject import Subject
from sooner.models.runner import Span, forward
from sooner.sampling.noise import F64, Noise
from sooner.sampling.road import F32, Road
from sooner.types import EMPTY, Draft, Request, RoundRecord


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first position, in tokens of output, where a speculative answer leaves the plain one.

    -1 stands for "ended". margin: between the two best values of what the choice maximises there, in logits.
    difference: the largest between the logits of the two passes. Both are those of a new pass over the same prefix.
    """

    position: int
    plain: int
    plain_text: str
    speculative: int
    speculative_text: str
    margin: float
    difference: float
    bound: float

    @property
    def near_tie(self) -> bool:
        """Rounding may have turned it: the two passes agree to the bound, and the choice was as near as that."""
        return self.difference <= self.bound and self.margin <= self.bound

    @property
    def kind(self) -> str:
        return "near-tie" if self.near_tie else "bug"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"kind": self.kind}

    def __str__(self) -> str:
        return (
            f"{self.kind} at output token {self.position}: {self.plain} {self.plain_text!r} became {self.speculative} "
            f"{self.speculative_text!r}, top-2 margin {self.margin:.2g}, logits differ by {self.difference:.2g}, "
            f"bound {self.bound:.2g}"
        )


def first_divergence(
    subject: Subject,
    request: Request,
    plain: Sequence[int],
    answer: Sequence[int],
    records: Sequence[RoundRecord],
) -> Divergence | None:
    """None where both answers have the same tokens. records: the speculative request's rounds."""
    pairs = enumerate(zip_longest(plain, answer, fillvalue=-1))
    parted = next(((at, pair) for at, pair in pairs if pair[0] != pair[1]), None)
    if parted is None:
        return None
    position, (mine, theirs) = parted
    prefix = [*request.prompt, *plain[:position]]
    spans = (r for r in records if r.start <= len(prefix) < r.start + max(len(r.committed), 1))
    start, draft = next(((r.start, r.proposal) for r in spans), (len(prefix), EMPTY))
    row = [-1, *draft.follow(prefix[start:])][-1] + 1  # the one that chose at this position
    alone = read(subject, prefix)[0]
    together = read(subject, prefix[:start], draft)[row]
    values = np.sort(choice_values(Road.of(request), alone, prefix, Noise(request.seed, request.sample)))
    texts = ["the end" if token < 0 else subject.text_of(token) for token in (mine, theirs)]
    return Divergence(
        position, mine, texts[0], theirs, texts[1],
        float(values[-1] - values[-2]), float(np.abs(alone - together).max()), subject.bound,
    )  # fmt: skip


def read(subject: Subject, prefix: Sequence[int], draft: Draft = EMPTY) -> F32:
    """Logits [1 + len(draft), V] of the pass that verifies `draft` after `prefix`."""
    cache, table = subject.decoder.new_cache(pages_for(len(prefix) + len(draft))), Table()
    if len(prefix) > 1:
        forward(subject.decoder, cache, [Span(table, prefix[:-1], wants=0)])
    return forward(subject.decoder, cache, [Span(table, prefix[-1:], draft)])[0]


def read_alone(subject: Subject, prefix: Sequence[int], tokens: Sequence[int]) -> F32:
    """Logits [1 + len(tokens), V] after the prefix and each of the tokens, in passes of one row, as plain decoding has
    them."""
    cache, table = subject.decoder.new_cache(pages_for(len(prefix) + len(tokens))), Table()
    if len(prefix) > 1:
        forward(subject.decoder, cache, [Span(table, prefix[:-1], wants=0)])
    return np.concatenate([forward(subject.decoder, cache, [Span(table, [t])])[0] for t in (prefix[-1], *tokens)])


def choice_values(road: Road, logits: F32, prefix: Sequence[int], noise: Noise) -> F64:
    """What `Road.choose` maximises, in logits: the adjusted row, with the noise of seeded sampling on what survives."""
    adjusted = road.adjust(logits, prefix)
    if road.params.greedy:
        return adjusted.astype(np.float64)
    values = road.scores(adjusted)
    alive = np.flatnonzero(values > -np.inf)
    values[alive] += noise.gumbel(len(prefix) - road.prompt_length, alive.astype(np.uint64))
    return values * road.params.temperature
