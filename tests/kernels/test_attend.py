"""Attention of the CPU kernels: against the torch twin, and bit for bit against itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from sooner.errors import InputError
from sooner.kernels.cpu import CpuKernels
from sooner.kernels.interface import PAGE, Heads, LayerCache, Rows
from sooner.kernels.reference import TorchKernels
from tests.support.passes import Branch, copy_cache, make_cache, make_heads, make_rows, spoil_unseen, take_rows

chain = Branch.chain
PASSES = {
    "one key": [chain(0, 1)],
    "page borders": [chain(15, 1), chain(16, 1), chain(17, 1), chain(63, 1), chain(64, 1), chain(0, 16), chain(0, 17)],
    "65 rows": [chain(60, 65)],
    "ragged": [chain(130, 4), chain(5, 1), chain(0, 40), chain(250, 3)],
    "trees": [Branch(30, (-1, 0, 0, 1, 1, 2)), Branch(0, (-1, -1, 0)), Branch(64, (-1,)), chain(47, 2)],
    "wide tree": [Branch(61, tuple((i - 1) // 2 if i else -1 for i in range(40)))],
}
GEOMETRIES: dict[str, dict[str, Any]] = {
    "grouped by 3": {"query": 9, "kv": 3, "size": 64},
    "one for one": {"query": 2, "kv": 2, "size": 32, "rotary": 16},
    "grouped by 8": {"query": 8, "kv": 1, "size": 80, "norms": True},
    "plain positions": {"query": 4, "kv": 2, "size": 16, "rotary": 0},
    "odd groups of an odd size": {"query": 15, "kv": 5, "size": 112},
    "partial rotary": {"query": 7, "kv": 1, "size": 128, "rotary": 96},
    "widest": {"query": 2, "kv": 1, "size": 256, "softcap": 3.0},
    "window of 5": {"query": 4, "kv": 2, "size": 48, "window": 5},
    "window of 70": {"query": 6, "kv": 1, "size": 32, "window": 70, "softcap": 20.0, "norms": True},
}


def qkv_for(rows: Rows, heads: Heads, seed: int = 3) -> Tensor:
    width = (heads.query + 2 * heads.kv) * heads.size
    return torch.randn(len(rows.positions), width, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", PASSES)
def test_attend_equals_the_twin_and_never_looks_elsewhere(
    fast: CpuKernels, twin: TorchKernels, name: str, geometry: str
) -> None:
    heads = make_heads(**GEOMETRIES[geometry])
    rows, pages = make_rows(PASSES[name])
    qkv, cache = qkv_for(rows, heads), make_cache(pages, heads.kv, heads.size)
    mine = copy_cache(cache)
    spoil_unseen(mine, rows, heads)
    expected = twin.attend(qkv, cache, rows, heads)
    torch.testing.assert_close(fast.attend(qkv, mine, rows, heads), expected, rtol=1e-5, atol=1e-5)
    page, offset = rows.slots.long() // PAGE, rows.slots.long() % PAGE
    torch.testing.assert_close(mine.keys[page, :, :, offset], cache.keys[page, :, :, offset], rtol=1e-5, atol=1e-5)
    assert torch.equal(mine.values[page, :, offset], cache.values[page, :, offset])


def test_no_rows(fast: CpuKernels) -> None:
    heads = make_heads(4, 2, 32)
    rows = take_rows(make_rows([chain(3, 2)])[0], [])
    assert fast.attend(torch.empty(0, 256), make_cache(2, 2, 32), rows, heads).shape == (0, 128)


def step_by_step(fast: CpuKernels, qkv: Tensor, cache: LayerCache, rows: Rows, heads: Heads, step: int) -> Tensor:
    parts = [list(range(i, min(i + step, len(qkv)))) for i in range(0, len(qkv), step)]
    return torch.cat([fast.attend(qkv[part].contiguous(), cache, take_rows(rows, part), heads) for part in parts])


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_a_row_ignores_its_neighbours(fast: CpuKernels, geometry: str) -> None:
    """200 positions one by one = in steps of 2..64 = in one prefill, to the last bit."""
    heads = make_heads(**GEOMETRIES[geometry])
    rows, pages = make_rows([chain(0, 200)])
    qkv = qkv_for(rows, heads)

    def outputs(step: int) -> Tensor:
        return step_by_step(fast, qkv, make_cache(pages, heads.kv, heads.size, seed=step), rows, heads, step)

    alone = outputs(1)
    for step in (2, 3, 4, 5, 7, 16, 64, 200):
        assert torch.equal(outputs(step), alone), step


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_other_sequences_change_nothing(fast: CpuKernels, geometry: str) -> None:
    heads = make_heads(**GEOMETRIES[geometry])
    rows, pages = make_rows(PASSES["ragged"] + PASSES["trees"])
    qkv, cache = qkv_for(rows, heads), make_cache(pages, heads.kv, heads.size)
    together = fast.attend(qkv, copy_cache(cache), rows, heads)
    for sequence in range(len(rows.tables)):
        own = (rows.sequence == sequence).nonzero().flatten().tolist()
        alone = fast.attend(qkv[own].contiguous(), copy_cache(cache), take_rows(rows, own), heads)
        assert torch.equal(alone, together[own]), sequence


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("committed", [0, 1, 14, 15, 16, 30, 63, 64, 100, 125])
def test_a_tree_row_equals_the_chain_row_it_becomes(fast: CpuKernels, committed: int, geometry: str) -> None:
    heads = make_heads(**GEOMETRIES[geometry])
    tree = Branch(committed, (-1, -1, 1, 0, 2, 2, 5, 5))
    tree_rows, pages = make_rows([tree])
    qkv, cache = qkv_for(tree_rows, heads), make_cache(pages, heads.kv, heads.size)
    from_tree = fast.attend(qkv, copy_cache(cache), tree_rows, heads)
    for row in range(len(tree.parents)):
        path = tree.path(row)
        chain_rows, _ = make_rows([chain(committed, len(path)), chain(0, 8 - len(path))] if len(path) < 8 else [tree])
        own = list(range(len(path)))
        chain_rows = take_rows(chain_rows, own)
        chain_rows.tables[0, : tree_rows.tables.shape[1]] = tree_rows.tables[0, : chain_rows.tables.shape[1]]
        chain_rows = retable(chain_rows, committed)
        from_chain = fast.attend(qkv[path].contiguous(), copy_cache(cache), chain_rows, heads)
        assert torch.equal(from_chain[-1], from_tree[row]), row


def retable(rows: Rows, committed: int) -> Rows:
    """Slots of a chain's rows according to its table."""
    table = rows.tables[0]
    slots = [int(table[p // PAGE]) * PAGE + p % PAGE for p in range(committed, committed + len(rows.positions))]
    rows.slots.copy_(torch.tensor(slots, dtype=torch.int32))
    return rows


@pytest.mark.parametrize("threads", [1, 3, 7])
def test_bits_do_not_depend_on_threads(fast: CpuKernels, threads: int) -> None:
    heads, other = make_heads(9, 3, 64), CpuKernels(threads)
    for branches in ([chain(700, 1)], [chain(300, 4)], PASSES["ragged"], PASSES["trees"], [chain(0, 130)]):
        rows, pages = make_rows(branches)
        qkv, cache = qkv_for(rows, heads), make_cache(pages, heads.kv, heads.size)
        got = other.attend(qkv, copy_cache(cache), rows, heads)
        assert torch.equal(got, fast.attend(qkv, copy_cache(cache), rows, heads))


def test_far_scores_stay_finite(fast: CpuKernels, twin: TorchKernels) -> None:
    """Scores of +-1e4, where a careless exp overflows or all weights of a segment vanish."""
    heads = make_heads(2, 1, 32, rotary=0)
    rows, pages = make_rows([chain(200, 3)])
    qkv, cache = 60 * qkv_for(rows, heads), make_cache(pages, 1, 32)
    cache.keys.mul_(30)
    expected = twin.attend(qkv, copy_cache(cache), rows, heads)
    torch.testing.assert_close(fast.attend(qkv, cache, rows, heads), expected, rtol=1e-3, atol=1e-3)


def test_wrong_indices_are_refused_by_name(fast: CpuKernels) -> None:
    heads = make_heads(2, 1, 32)

    def attend(field: str, value: int) -> None:
        rows, pages = make_rows([chain(20, 2)])
        getattr(rows, field).fill_(value)
        fast.attend(qkv_for(rows, heads), make_cache(pages, 1, 32), rows, heads)

    wrong = {"slots": -1, "sequence": 1, "context": 33, "tables": 3, "positions": -1}
    for field, value in wrong.items():
        with pytest.raises(ValueError, match="rows of a pass"):
            attend(field, value)
    with pytest.raises(ValueError, match="a row sees nothing"):
        attend("context", 0)
    with pytest.raises(ValueError, match="last position 5000"):
        attend("positions", 5000)


def test_head_sizes_off_the_grid_are_refused(fast: CpuKernels) -> None:
    heads = make_heads(2, 1, 40)
    rows, pages = make_rows([chain(3, 1)])
    with pytest.raises(InputError, match="multiples of 16"):
        fast.attend(qkv_for(rows, heads), make_cache(pages, 1, 40), rows, heads)
