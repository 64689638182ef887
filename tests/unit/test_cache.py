"""The paged cache against a list that remembers what each position should hold."""

import zlib

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sooner.bench.machine import memory_mb
from sooner.cache.paged import PagedCache, Table
from sooner.errors import CapacityError
from sooner.kernels.interface import PAGE


class CacheMachine(RuleBasedStateMachine):
    """Writes a number into each position's slot, and expects to read it there until it is truncated.

    The number depends on all tokens up to the position, as keys and values do; tokens are 0 or 1, so prefixes meet.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cache = PagedCache(1, 1, 1, pages=8)
        self.tables: list[Table] = []
        self.truth: list[list[float]] = []
        self.tokens: list[list[int]] = []
        self.mixed: set[int] = set()  # tables (by identity) whose entries were moved: they hold no plain prefix

    def _write(self, table: Table, position: int, tokens: list[int]) -> float:
        value = meaning(tokens[: position + 1])
        page, offset = divmod(table.slot(position), PAGE)
        self.cache.layers[0].keys[page, :, :, offset] = value
        self.cache.layers[0].values[page, :, offset] = value
        return value

    @precondition(lambda self: len(self.tables) < 5)
    @rule()
    def open(self) -> None:
        self.tables.append(Table())
        self.truth.append([])
        self.tokens.append([])

    @precondition(lambda self: self.tables)
    @rule(which=st.integers(0, 4), more=st.integers(1, 40), pattern=st.sampled_from([(0,), (1,), (0, 1)]))
    def append(self, which: int, more: int, pattern: tuple[int, ...]) -> None:
        which %= len(self.tables)
        table = self.tables[which]
        before = list(table.pages)
        try:
            self.cache.reserve(table, table.length + more)
        except CapacityError:
            assert table.pages == before
            return
        start = table.length
        self.tokens[which] += [pattern[i % len(pattern)] for i in range(more)]
        self.truth[which] += [self._write(table, start + i, self.tokens[which]) for i in range(more)]
        self.cache.advance(table, start + more)

    @precondition(lambda self: self.tables)
    @rule(which=st.integers(0, 4), share=st.floats(0, 1))
    def truncate(self, which: int, share: float) -> None:
        which %= len(self.tables)
        length = int(self.tables[which].length * share)
        self.cache.truncate(self.tables[which], length)
        del self.truth[which][length:], self.tokens[which][length:]

    @precondition(lambda self: self.tables)
    @rule(which=st.integers(0, 4), data=st.data())
    def keep(self, which: int, data: st.DataObject) -> None:
        which %= len(self.tables)
        table = self.tables[which]
        start = data.draw(st.integers(0, table.length))
        nodes = data.draw(st.sets(st.integers(0, max(table.length - start - 1, 0)), max_size=table.length - start))
        if any(self.cache._is_shared(page) for page in table.pages):
            return  # nodes of a round always lie in pages that were reserved for writing
        self.cache.keep(table, start, sorted(nodes))
        self.truth[which][start:] = [self.truth[which][start + node] for node in sorted(nodes)]
        self.tokens[which][start:] = [self.tokens[which][start + node] for node in sorted(nodes)]
        self.mixed.add(id(table))

    @precondition(lambda self: self.tables and len(self.tables) < 5)
    @rule(which=st.integers(0, 4), share=st.floats(0, 1))
    def share(self, which: int, share: float) -> None:
        which %= len(self.tables)
        length = int(self.tables[which].length * share)
        self.tables.append(self.cache.share(self.tables[which], length))
        self.truth.append(self.truth[which][:length])
        self.tokens.append(self.tokens[which][:length])
        if id(self.tables[which]) in self.mixed:
            self.mixed.add(id(self.tables[-1]))

    @precondition(lambda self: self.tables)
    @rule(which=st.integers(0, 4))
    def publish(self, which: int) -> None:
        which %= len(self.tables)
        if id(self.tables[which]) not in self.mixed:
            self.cache.publish(self.tables[which], self.tokens[which])

    @precondition(lambda self: len(self.tables) < 5)
    @rule(length=st.integers(1, 80), pattern=st.sampled_from([(0,), (1,), (0, 1)]))
    def adopt(self, length: int, pattern: tuple[int, ...]) -> None:
        wanted = [pattern[i % len(pattern)] for i in range(length)]
        table = Table()
        found = self.cache.adopt(table, wanted)
        assert found == table.length < length
        self.tables.append(table)
        self.tokens.append(wanted[:found])
        self.truth.append([meaning(wanted[: i + 1]) for i in range(found)])

    @precondition(lambda self: self.tables)
    @rule(which=st.integers(0, 4))
    def release(self, which: int) -> None:
        which %= len(self.tables)
        table = self.tables.pop(which)
        self.mixed.discard(id(table))
        self.cache.release(table)
        self.truth.pop(which)
        self.tokens.pop(which)

    @invariant()
    def holds_what_was_written(self) -> None:
        self.cache.check_integrity(self.tables)
        for table, truth in zip(self.tables, self.truth):
            slots = [divmod(table.slot(p), PAGE) for p in range(table.length)]
            assert [float(self.cache.layers[0].keys[page, 0, 0, offset]) for page, offset in slots] == truth
            assert [float(self.cache.layers[0].values[page, 0, offset, 0]) for page, offset in slots] == truth


def meaning(tokens: list[int]) -> float:
    """A number that stands for a whole prefix."""
    return float(zlib.crc32(bytes(tokens)) % 2**20)


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


@pytest.mark.skipif(not memory_mb(), reason="the system does not tell")
def test_a_cpu_cache_takes_memory_as_it_is_written_and_all_layers_together() -> None:
    before = memory_mb()["resident"]
    cache = PagedCache(30, 3, 64, pages=4096)  # 3 GB
    table = Table()
    cache.reserve(table, 1)
    for layer in cache.layers:
        layer.keys[table.pages[0]] = layer.values[table.pages[0]] = 1.0
    assert cache.token_bytes == 30 * 2 * 3 * 64 * 4
    assert memory_mb()["resident"] - before < 16  # 0.7 MB of a page, in at most two huge ones


def test_published_pages_outlive_their_sequence_and_go_oldest_first() -> None:
    cache = PagedCache(1, 1, 1, pages=4)
    for start in (0, 100):
        table, tokens = Table(), list(range(start, start + 2 * PAGE))
        cache.reserve(table, len(tokens))
        cache.advance(table, len(tokens))
        cache.publish(table, tokens)
        cache.release(table)
    assert cache.free_pages == 4
    newcomer = Table()
    cache.reserve(newcomer, 1)  # takes the deeper page of the older prefix
    assert cache.adopt(Table(), list(range(40))) == PAGE
    assert cache.adopt(Table(), list(range(100, 140))) == 2 * PAGE
