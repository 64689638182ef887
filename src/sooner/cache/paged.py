"""A paged key/value cache addressed by absolute length.

A sequence owns a `Table`: its pages and how many positions of them hold keys and values. Rolling back is
`truncate(table, length)`: stale entries beyond the length are simply written over. Lengths are absolute, never
"drop n", because two caches that advanced by different amounts cannot be cut by the same count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch

from sooner.errors import CapacityError
from sooner.kernels.interface import PAGE, LayerCache


@dataclass(slots=True)
class Table:
    """One sequence's place in the cache. Position p lies in pages[p // PAGE]; only p < length may be read."""

    pages: list[int] = field(default_factory=list)
    length: int = 0

    def slot(self, position: int) -> int:
        return self.pages[position // PAGE] * PAGE + position % PAGE


class PagedCache:
    """`pages` pages of PAGE positions for every layer, shared by all sequences and counted by reference."""

    def __init__(
        self,
        layers: int,
        kv_heads: int,
        head_size: int,
        pages: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        def zeros(*shape: int) -> torch.Tensor:
            # On the CPU numpy's zeros take memory only where a page is written; torch's would touch all of it.
            if torch.device(device).type == "cpu" and dtype == torch.float32:
                return torch.from_numpy(np.zeros(shape, np.float32))
            return torch.zeros(shape, dtype=dtype, device=device)

        self.layers = [
            LayerCache(zeros(pages, kv_heads, head_size, PAGE), zeros(pages, kv_heads, PAGE, head_size))
            for _ in range(layers)
        ]
        self.pages = pages
        self._free = list(range(pages - 1, -1, -1))
        self._holders = [0] * pages

    @property
    def free_pages(self) -> int:
        return len(self._free)

    def reserve(self, table: Table, length: int) -> None:
        """Makes positions table.length..length-1 writable: takes pages, and copies a shared one before it is written.

        Raises CapacityError, with the table unchanged, when too few pages are free.
        """
        first = table.length // PAGE
        shared = [i for i in range(first, len(table.pages)) if self._holders[table.pages[i]] > 1]
        missing = max(pages_for(length) - len(table.pages), 0)
        if len(shared) + missing > len(self._free):
            raise CapacityError(
                f"{length} positions need {len(shared) + missing} more cache pages, {len(self._free)} of {self.pages} "
                "are free; lower the number of requests in flight or raise the cache size"
            )
        for i in shared:
            table.pages[i] = self._copy(table.pages[i])
        table.pages.extend(self._take() for _ in range(missing))

    def advance(self, table: Table, length: int) -> None:
        """Positions up to `length` have been written."""
        if not table.length <= length <= len(table.pages) * PAGE:
            raise ValueError(f"cannot advance from {table.length} to {length} in {len(table.pages)} pages")
        table.length = length

    def truncate(self, table: Table, length: int) -> None:
        """Forgets everything from position `length` on and gives back the pages that are no longer touched."""
        if not 0 <= length <= table.length:
            raise ValueError(f"cannot truncate {table.length} positions to {length}")
        table.length = length
        while len(table.pages) > pages_for(length):
            self._drop(table.pages.pop())

    def keep(self, table: Table, start: int, path: Sequence[int]) -> None:
        """Of the draft nodes stored at start, start+1, ... keeps those in `path` (ascending), moved into order."""
        if any(b <= a for a, b in pairwise(path)):
            raise ValueError(f"path {path} must ascend")
        for depth, node in enumerate(path):
            if node != depth:  # node > depth, so nothing that is still needed is written over
                self._move(table.slot(start + node), table.slot(start + depth))
        self.truncate(table, start + len(path))

    def share(self, table: Table, length: int) -> Table:
        """A new table over the first `length` positions; a page is copied when one of its holders writes to it."""
        if not 0 <= length <= table.length:
            raise ValueError(f"cannot share {length} of {table.length} positions")
        twin = Table(table.pages[: pages_for(length)], length)
        for page in twin.pages:
            self._holders[page] += 1
        return twin

    def release(self, table: Table) -> None:
        self.truncate(table, 0)

    def check_integrity(self, tables: Iterable[Table]) -> None:
        """Asserts that every page is free or held exactly as often as `tables`, all that are alive, say."""
        held = Counter(page for table in tables for page in table.pages)
        assert all(self._holders[page] == held[page] for page in range(self.pages)), "holder counts drifted"
        free = set(self._free)
        assert len(free) == len(self._free), "a page is free twice"
        assert free == {page for page in range(self.pages) if not held[page]}, "a page leaked or is free while held"

    def _take(self) -> int:
        page = self._free.pop()
        self._holders[page] = 1
        return page

    def _drop(self, page: int) -> None:
        self._holders[page] -= 1
        if not self._holders[page]:
            self._free.append(page)

    def _copy(self, page: int) -> int:
        fresh = self._take()
        for layer in self.layers:
            layer.keys[fresh] = layer.keys[page]
            layer.values[fresh] = layer.values[page]
        self._drop(page)
        return fresh

    def _move(self, source: int, target: int) -> None:
        (page, offset), (to_page, to_offset) = divmod(source, PAGE), divmod(target, PAGE)
        for layer in self.layers:
            layer.keys[to_page, :, :, to_offset] = layer.keys[page, :, :, offset]
            layer.values[to_page, :, to_offset] = layer.values[page, :, offset]


def pages_for(length: int) -> int:
    return -(-length // PAGE)
