"""The paged cache against a list that remembers what each position should hold."""

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sooner.cache.paged import PagedCache, Table
from sooner.errors import CapacityError
from sooner.kernels.interface import PAGE


class CacheMachine(RuleBasedStateMachine):
    """Writes a number into each position's slot, and expects to read it there until it is truncated."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = PagedCache(1, 1, 1, pages=8)
        self.tables: list[Table] = []
        self.truth: list[list[float]] = []
        self.counter = 0.0

    def _write(self, table: Table, position: int) -> float:
        self.counter += 1
        page, offset = divmod(table.slot(position), PAGE)
        self.cache.layers[0].keys[page, :, :, offset] = self.counter
        self.cache.layers[0].values[page, :, offset] = self.counter
        return self.counter

    @precondition(lambda self: len(self.tables) < 5)
    @rule()
    def open(self) -> None:
        self.tables.append(Table())
        self.truth.append([])

    @precondition(lambda self: self.tables)
    @rule(which=st.integers(0, 4), more=st.integers(1, 40))
    def append(self, which: int, more: int) -> None:
        which %= len(self.tables)
        table = self.tables[which]
        before = list(table.pages)
        try:
            self.cache.reserve(table, table.length + more)
        except CapacityError:
            assert table.pages == before
            return
        start = table.length
        self.truth[which] += [self._write(table, start + i) for i in range(more)]
        self.cache.advance(table, start + more)

    @precondition(lambda self: self.tables)
    @rule(which=st.integers(0, 4), share=st.floats(0, 1))
    def truncate(self, which: int, share: float) -> None:
        which %= len(self.tables)
        length = int(self.tables[which].length * share)
        self.cache.truncate(self.tables[which], length)
        del self.truth[which][length:]

    @precondition(lambda self: self.tables)
    @rule(which=st.integers(0, 4), data=st.data())
    def keep(self, which: int, data: st.DataObject) -> None:
        which %= len(self.tables)
        table = self.tables[which]
        start = data.draw(st.integers(0, table.length))
        nodes = data.draw(st.sets(st.integers(0, max(table.length - start - 1, 0)), max_size=table.length - start))
        if any(self.cache._holders[page] > 1 for page in table.pages):
            return  # nodes of a round always lie in pages that were reserved for writing
        self.cache.keep(table, start, sorted(nodes))
        self.truth[which][start:] = [self.truth[which][start + node] for node in sorted(nodes)]

    @precondition(lambda self: self.tables and len(self.tables) < 5)
    @rule(which=st.integers(0, 4), share=st.floats(0, 1))
    def share(self, which: int, share: float) -> None:
        which %= len(self.tables)
        length = int(self.tables[which].length * share)
        self.tables.append(self.cache.share(self.tables[which], length))
        self.truth.append(self.truth[which][:length])

    @precondition(lambda self: self.tables)
    @rule(which=st.integers(0, 4))
    def release(self, which: int) -> None:
        which %= len(self.tables)
        self.cache.release(self.tables.pop(which))
        self.truth.pop(which)

    @invariant()
    def holds_what_was_written(self) -> None:
        self.cache.check_integrity(self.tables)
        for table, truth in zip(self.tables, self.truth):
            slots = [divmod(table.slot(p), PAGE) for p in range(table.length)]
            assert [float(self.cache.layers[0].keys[page, 0, 0, offset]) for page, offset in slots] == truth
            assert [float(self.cache.layers[0].values[page, 0, offset, 0]) for page, offset in slots] == truth


TestCache = CacheMachine.TestCase
TestCache.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_impossible_lengths_raise() -> None:
    cache = PagedCache(1, 1, 1, pages=2)
    table = Table()
    cache.reserve(table, 20)
    cache.advance(table, 20)
    with pytest.raises(ValueError, match="truncate"):
        cache.truncate(table, 21)
    with pytest.raises(ValueError, match="advance"):
        cache.advance(table, 33)
    with pytest.raises(ValueError, match="ascend"):
        cache.keep(table, 0, [3, 1])
    with pytest.raises(CapacityError, match="cache pages"):
        cache.reserve(table, 33)


def test_an_untouched_cpu_cache_takes_no_memory_to_speak_of() -> None:
    cache = PagedCache(2, 4, 64, pages=4096)
    assert cache.layers[0].keys.dtype == torch.float32
    assert cache.free_pages == 4096
