"""One ragged target pass over all rows of all sequences: ledger tails, prefill chunks, draft chains and draft trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sooner.cache.paged import PagedCache, Table, pages_for
from sooner.kernels.interface import PAGE, Rows
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
    cuts = np.cumsum([span.wants + len(span.draft) - span.stored for span in spans])[:-1]
    return np.split(logits.cpu().numpy(), cuts), list(torch.split(features, [span.rows for span in spans]))


def states(decoder: Decoder, tokens: Sequence[int], taps: Sequence[int]) -> Tensor:
    """The features [n, taps, width] of a text by itself, as the rounds of one sequence would see them."""
    cache, table = decoder.new_cache(pages_for(len(tokens))), Table()
    parts = [torch.empty(0, len(taps), decoder.config.hidden, device=decoder.device)]
    for start in range(0, len(tokens), READ_ROWS):
        span = Span(table, tokens[start : start + READ_ROWS], wants=0)
        parts += tapped(decoder, cache, [span], taps)[1]
    return torch.cat(parts)


def layout(spans: Sequence[Span], device: torch.device) -> tuple[Rows, Tensor]:
    """Where each row sits (`Rows`), and the indices of the rows whose logits are wanted."""
    depth = max((len(path) for span in spans for path in _tree_paths(span)), default=0)
    most = max((len(span.table.pages) for span in spans), default=0)
    tables = np.zeros((len(spans), max(most, 1)), np.int32)
    tokens: list[int] = []
    wanted: list[int] = []
    columns: list[NDArray[np.int32]] = []  # a span: [4 + depth, rows]
    for index, span in enumerate(spans):
        tables[index, : len(span.table.pages)] = span.table.pages
        wanted.extend(range(len(tokens) + len(span.tail) - span.wants, len(tokens) + span.rows))
        tokens.extend(span.tail)
        tokens.extend(span.draft.tokens[span.stored :])
        columns.append(_columns(index, span, tables[index], depth))
    flat = torch.from_numpy(np.concatenate(columns, axis=1) if columns else np.zeros((4, 0), np.int32)).to(device)
    positions, slots, sequence, context = flat[:4].unbind()  # rows of a contiguous array are contiguous
    extra, places = flat[4:].t().contiguous(), torch.from_numpy(tables).to(device)
    ids = torch.tensor(tokens, dtype=torch.int64, device=device)
    wants = torch.tensor(wanted, dtype=torch.int64, device=device)
    return Rows(ids, positions, slots, sequence, context, places, extra), wants


def _tree_paths(span: Span) -> list[list[int]]:
    """Each node's ancestors, itself included, where the draft branches; a chain needs none."""
    return [] if span.draft.is_chain else [span.draft.ancestors(node) for node in range(len(span.draft))]


def _columns(index: int, span: Span, pages: NDArray[np.int32], depth: int) -> NDArray[np.int32]:
    """position, slot, sequence, context and `depth` extra slots of each of the span's rows: [4 + depth, rows]."""
    start, count = span.table.length - span.stored, span.stored + span.rows
    stored = np.arange(start, start + count, dtype=np.int32)
    slots = pages[stored // PAGE] * PAGE + stored % PAGE
    columns = np.full((4 + depth, count), -1, np.int32)
    columns[0], columns[1], columns[2], columns[3] = stored, slots, index, stored + 1
    ledger = len(span.tail)
    for node, path in enumerate(_tree_paths(span)):
        columns[0, ledger + node] = start + ledger + len(path) - 1
        columns[3, ledger + node] = start + ledger
        columns[4 : 4 + len(path), ledger + node] = slots[[ledger + ancestor for ancestor in path]]
    return columns[:, span.stored :]
