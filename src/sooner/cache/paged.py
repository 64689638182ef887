"""A paged key/value cache addressed by absolute length, with prefixes shared between sequences.

A sequence owns a `Table`: its pages and how many positions of them hold keys and values. Rolling back is
`truncate(table, length)`: stale entries beyond the length are simply written over. Lengths are absolute, never
"drop n", because two caches that advanced by different amounts cannot be cut by the same count.

A page full of committed tokens may be *published*: it is then found by what it holds (its tokens and the page before
it), outlives its sequence, and is given up least recently used first when pages run out. Published pages are never
written; neither are pages with several holders.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch

from sooner.errors import CapacityError
from sooner.kernels.interface import PAGE, LayerCache
from sooner.kernels.memory import huge

Content = tuple[int, tuple[int, ...]]  # the name of the page before (0: none), and this page's tokens


@dataclass(slots=True)
class Table:
    """One sequence's place in the cache. Position p lies in pages[p // PAGE]; only p < length may be read.

    named: how many pages, from the first, have contents with a name; `name` is that of the last of them.
    """

    pages: list[int] = field(default_factory=list)
    length: int = 0
    named: int = 0
    name: int = 0

    def slot(self, position: int) -> int:
        return self.pages[position // PAGE] * PAGE + position % PAGE


class PagedCache:
    """`pages` pages of PAGE positions for every layer, shared by all sequences and counted by reference."""

    def __init__(
        self, layers: int, kv_heads: int, head_size: int, pages: int, device: torch.device | str = "cpu"
    ) -> None:
        # All layers of a page lie side by side, so that a sequence takes memory as it grows, and not a piece of every
        # layer's at once; on the CPU memory that nobody has written yet is not taken at all.
        shape = (pages, layers, 2, kv_heads * head_size * PAGE)
        if torch.device(device).type == "cpu":
            memory = huge(math.prod(shape) * torch.float32.itemsize).view(torch.float32).view(shape)
        else:
            memory = torch.zeros(shape, device=device)
        self._memory = memory
        self._keys = memory[:, :, 0].view(pages, layers, kv_heads, head_size, PAGE)
        self._values = memory[:, :, 1].view(pages, layers, kv_heads, PAGE, head_size)
        self.layers = [LayerCache(*pair) for pair in zip(self._keys.unbind(1), self._values.unbind(1))]
        self.pages = pages
        self._free = list(range(pages - 1, -1, -1))
        self._holders = [0] * pages
        self._published: dict[Content, int] = {}  # page by content
        self._contents: dict[int, Content] = {}  # and the other way round
        self._names: dict[Content, int] = {}  # of published contents; a name is never used twice
        self._idle: dict[int, None] = {}  # published pages without a holder, least recently used first
        self._last_name = 0

    @property
    def token_bytes(self) -> int:
        """Bytes of keys and values of one position, all layers."""
        return self._memory.nbytes // (self.pages * PAGE)

    @property
    def free_pages(self) -> int:
        """Pages that can be had: free ones, and published ones that nobody holds."""
        return len(self._free) + len(self._idle)

    def reserve(self, table: Table, length: int) -> None:
        """Makes positions table.length..length-1 writable: takes pages, and copies a shared one before it is written.

        Raises CapacityError, with the table unchanged, when too few pages are free.
        """
        first = table.length // PAGE
        shared = [i for i in range(first, len(table.pages)) if self._is_shared(table.pages[i])]
        missing = max(pages_for(length) - len(table.pages), 0)
        if len(shared) + missing > self.free_pages:
            raise CapacityError(
                f"{length} positions need {len(shared) + missing} more cache pages, {self.free_pages} of {self.pages} "
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
        if table.named > length // PAGE:
            table.named = table.name = 0

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
            self._hold(page)
        return twin

    def release(self, table: Table) -> None:
        self.truncate(table, 0)

    def publish(self, table: Table, tokens: Sequence[int]) -> None:
        """Makes the table's full pages findable by what they hold: the ledger's tokens up to table.length."""
        for i in range(table.named, table.length // PAGE):
            content = table.name, tuple(tokens[i * PAGE : (i + 1) * PAGE])
            if content not in self._published and table.pages[i] not in self._contents:
                self._last_name += 1
                self._published[content], self._contents[table.pages[i]] = table.pages[i], content
                self._names[content] = self._last_name
            if content not in self._names:
                return  # the page is published under a name whose beginning was given up since
            table.named, table.name = i + 1, self._names[content]

    def adopt(self, table: Table, tokens: Sequence[int]) -> int:
        """Fills an empty table with published pages that hold the beginning of `tokens`; returns its new length.

        The last token is always left to compute: its row chooses what comes next.
        """
        for i in range((len(tokens) - 1) // PAGE):
            content = table.name, tuple(tokens[i * PAGE : (i + 1) * PAGE])
            if content not in self._published:
                break
            self._hold(self._published[content])
            table.pages.append(self._published[content])
            table.named, table.name = i + 1, self._names[content]
        table.length = len(table.pages) * PAGE
        return table.length

    def check_integrity(self, tables: Iterable[Table]) -> None:
        """Asserts that every page is free, idle or held exactly as often as `tables`, all that are alive, say."""
        held = Counter(page for table in tables for page in table.pages)
        assert all(self._holders[page] == held[page] for page in range(self.pages)), "holder counts drifted"
        free, idle = set(self._free), set(self._idle)
        assert len(free) == len(self._free) and not free & idle, "a page is free twice"
        assert free | idle == {page for page in range(self.pages) if not held[page]}, (
            "a page leaked, or is free and held"
        )
        assert idle == {page for page in self._contents if not held[page]}, "an idle page is not published"
        assert {content: page for page, content in self._contents.items()} == self._published, "contents drifted"
        assert self._names.keys() == self._published.keys(), "a name without a page"

    def _is_shared(self, page: int) -> bool:
        return self._holders[page] > 1 or page in self._contents

    def _take(self) -> int:
        if not self._free:
            oldest = next(iter(self._idle))
            del self._idle[oldest]
            self._unpublish(oldest)
            self._free.append(oldest)
        page = self._free.pop()
        self._holders[page] = 1
        return page

    def _hold(self, page: int) -> None:
        self._holders[page] += 1
        self._idle.pop(page, None)

    def _drop(self, page: int) -> None:
        self._holders[page] -= 1
        if not self._holders[page]:
            if page in self._contents:
                self._idle[page] = None
            else:
                self._free.append(page)

    def _unpublish(self, page: int) -> None:
        content = self._contents.pop(page)
        del self._published[content], self._names[content]

    def _copy(self, page: int) -> int:
        fresh = self._take()
        self._memory[fresh] = self._memory[page]
        self._drop(page)
        return fresh

    def _move(self, source: int, target: int) -> None:
        (page, offset), (to_page, to_offset) = divmod(source, PAGE), divmod(target, PAGE)
        self._keys[to_page, ..., to_offset] = self._keys[page, ..., offset]
        self._values[to_page, ..., to_offset, :] = self._values[page, ..., offset, :]


def pages_for(length: int) -> int:
    return -(-length // PAGE)
