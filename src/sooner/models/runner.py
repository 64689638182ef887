"""One ragged target pass over all rows of all sequences: ledger tails, prefill chunks, draft chains and draft trees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sooner.cache.paged import PagedCache, Table, pages_for
from sooner.kernels.interface import Rows
from sooner.models.decoder import Decoder
from sooner.types import EMPTY, Draft

F32 = NDArray[np.float32]
READ_ROWS = 512  # of one pass over a text: bounds its memory


@dataclass(frozen=True, slots=True)
class Span:
    """One sequence's rows in a pass: `tail` are the ledger's tokens from table.length on, then comes the draft.

    wants: of how many of the tail's last rows logits are needed; every draft node's are too. 1 is decoding; a prefill
    chunk that is not the prompt's last wants 0. The tail's last token is the one that the draft's root children follow.
    stored: draft nodes, the first ones, whose rows an earlier pass has put at the end of the table; the tail is then
    empty, and the rows are those of the other nodes.
    """

    table: Table
    tail: Sequence[int]
    draft: Draft = EMPTY
    wants: int = 1
    stored: int = 0

    @property
    def rows(self) -> int:
        return len(self.tail) + len(self.draft) - self.stored


def forward(decoder: Decoder, cache: PagedCache, spans: Sequence[Span]) -> list[F32]:
    """Runs the pass, advances every table over all of its rows, and returns logits a span.

    A span's logits are [wants + len(draft) - stored, vocabulary]: row wants - 1 chooses what follows the tail, row
    wants + i what follows draft node stored + i. Raises CapacityError before anything is computed.
    """
    return tapped(decoder, cache, spans, ())[0]


@torch.inference_mode()
def tapped(
    decoder: Decoder, cache: PagedCache, spans: Sequence[Span], taps: Sequence[int]
) -> tuple[list[F32], list[Tensor]]:
    """As `forward`, and the features of each span's rows, [span.rows, len(taps), width]: see `Decoder.tapped`."""
    ends = [span.table.length + span.rows for span in spans]
    for span, end in zip(spans, ends, strict=True):
        cache.reserve(span.table, end)
    rows, wanted = layout(spans, decoder.device)
    logits, features = decoder.tapped(rows, cache.layers, wanted, taps)
    for span, end in zip(spans, ends, strict=True):
        cache.advance(span.table, end)
    whole, cuts = logits.cpu().numpy(), accumulate(span.wants + len(span.draft) - span.stored for span in spans)
    parts = [whole[start:end] for start, end in pairwise(chain((0,), cuts))]
    return parts, [features] if len(spans) == 1 else list(torch.split(features, [span.rows for span in spans]))


def states(decoder: Decoder, tokens: Sequence[int], taps: Sequence[int]) -> Tensor:
    """The features [n, taps, width] of a text by itself, as the rounds of one sequence would see them."""
    cache, table = decoder.new_cache(pages_for(len(tokens))), Table()
    parts = [torch.empty(0, len(taps), decoder.config.hidden, device=decoder.device)]
    for start in range(0, len(tokens), READ_ROWS):
        span = Span(table, tokens[start : start + READ_ROWS], wants=0)
        parts += tapped(decoder, cache, [span], taps)[1]
    return torch.cat(parts)


def layout(spans: Sequence[Span], device: torch.device) -> tuple[Rows, Tensor]:
    """Where each row sits (`Rows`), and the indices of the rows whose logits are wanted.

    Lists first and few arrays at the end: between two passes the processor's caches are cold, and every call into a
    library costs some ten microseconds.
    """
    tokens: list[int] = []
    wanted: list[int] = []
    places: list[tuple[int, int, int, int]] = []  # position, slot, sequence, context
    paths: list[list[int]] = []  # the slots of a row's ancestors and its own
    tables = np.zeros((len(spans), max((len(span.table.pages) for span in spans), default=0) or 1), np.int32)
    for index, span in enumerate(spans):
        tables[index, : len(span.table.pages)] = span.table.pages
        wanted.extend(range(len(tokens) + len(span.tail) - span.wants, len(tokens) + span.rows))
        tokens.extend(span.tail)
        tokens.extend(span.draft.tokens[span.stored :])
        for at, (position, end, path) in enumerate(_seen(span), span.table.length):
            places.append((position, span.table.slot(at), index, end))
            paths.append(path)
    extra = np.full((len(paths), max(map(len, paths), default=0)), -1, np.int32)
    if extra.size:
        for row, path in enumerate(paths):
            extra[row, : len(path)] = path
    columns = np.ascontiguousarray(np.array(places, np.int32).reshape(-1, 4).T)
    positions, slots, sequence, context = torch.from_numpy(columns).to(device).unbind()
    ids = torch.from_numpy(np.array(tokens + wanted, np.int64)).to(device)
    sees = torch.from_numpy(tables).to(device), torch.from_numpy(extra).to(device)
    return Rows(ids[: len(tokens)], positions, slots, sequence, context, *sees), ids[len(tokens) :]


def _seen(span: Span) -> Iterator[tuple[int, int, list[int]]]:
    """Position, context, and of a tree's node the slots of its path, for each of the span's rows."""
    start, draft = span.table.length, span.draft
    if draft.is_chain:
        return ((at, at + 1, []) for at in range(start, start + span.rows))
    root = start - span.stored + len(span.tail)  # where the first node lies
    nodes = (draft.ancestors(node) for node in range(span.stored, len(draft)))
    branches = ((root + len(path) - 1, root, [span.table.slot(root + node) for node in path]) for path in nodes)
    return chain(((at, at + 1, []) for at in range(start, start + len(span.tail))), branches)
