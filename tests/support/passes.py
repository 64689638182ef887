"""Random weights, and passes over a paged cache with chains and trees, for tests of kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sooner.kernels.formats import DTYPES, FORMATS, LAYOUTS, Stored, store
from sooner.kernels.interface import PAGE, Heads, LayerCache, Norm, Rows


def random_weight(n: int, k: int, name: str, seed: int = 0) -> Stored:
    """[n, k] with values of the order of 1/sqrt(k); every quant and every sign occurs."""
    g = torch.Generator().manual_seed(seed)
    scale = k**-0.5
    if name in DTYPES:
        return store((torch.randn(n, k, generator=g) * scale).to(DTYPES[name]))
    layout = LAYOUTS[name]
    blocks = torch.randint(0, 256, (n * k // layout.block, layout.block_bytes), dtype=torch.uint8, generator=g)
    top = 128 if layout.block_bytes > layout.block else 8
    halves = 2 if name in ("q4_1", "g32q4", "g32q8") else 1
    scales = torch.randn(len(blocks), halves, generator=g).to(torch.float16) * scale / top
    # A float32 scale has the 17 bits of an f16 times 6 bits.
    numbers = scales if name in FORMATS else scales.float() * torch.randint(1, 64, scales.shape, generator=g) / 32
    blocks[:, : numbers.element_size() * halves] = numbers.contiguous().view(torch.uint8)
    return Stored(name, (n, k), blocks.view(-1))


@dataclass(frozen=True)
class Branch:
    """Rows of one sequence in a pass: `committed` positions are in the cache, then come new rows.

    parents: of each row, -1 for a child of the last committed position; a chain has -1, 0, 1, ... A chain's rows see
    one another through the cache, a tree's through extras (`tree` forces that form upon a chain).
    """

    committed: int
    parents: tuple[int, ...]
    tree: bool = True

    @classmethod
    def chain(cls, committed: int, rows: int) -> Branch:
        return cls(committed, tuple(range(-1, rows - 1)), tree=False)

    def path(self, row: int) -> list[int]:
        path = []
        while row >= 0:
            path.append(row)
            row = self.parents[row]
        return path[::-1]


def make_rows(branches: Sequence[Branch], seed: int = 0) -> tuple[Rows, int]:
    """The rows of a pass, with pages handed out in random order; and the number of pages."""
    needed = [-(-(b.committed + len(b.parents)) // PAGE) for b in branches]
    pages = sum(needed) + 1
    order = torch.randperm(pages, generator=torch.Generator().manual_seed(seed)).tolist()
    tables = [[order.pop() for _ in range(n)] for n in needed]
    width, most = max(needed), max((len(b.parents) for b in branches if b.tree), default=0)
    lines: list[tuple[int, int, int, int, list[int]]] = []
    for s, branch in enumerate(branches):
        slots = [page * PAGE + offset for page in tables[s] for offset in range(PAGE)]
        for row in range(len(branch.parents)):
            path = branch.path(row)
            position = branch.committed + len(path) - 1
            extra = [slots[branch.committed + node] for node in path] if branch.tree else []
            context = branch.committed if branch.tree else position + 1
            lines.append((position, slots[branch.committed + row], s, context, extra + [-1] * (most - len(extra))))
    columns = [_ints(list(column)) for column in zip(*lines, strict=True)]
    return Rows(
        tokens=torch.zeros(len(lines), dtype=torch.int64),
        positions=columns[0],
        slots=columns[1],
        sequence=columns[2],
        context=columns[3],
        tables=_ints([table + [0] * (width - len(table)) for table in tables]),
        extra=columns[4].view(len(lines), most),
    ), pages


def _ints(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def take_rows(rows: Rows, index: list[int]) -> Rows:
    """Some rows of a pass, as a pass of their own."""
    names = ("tokens", "positions", "slots", "sequence", "context", "extra")
    return replace(rows, **{name: getattr(rows, name)[index].contiguous() for name in names})


def make_cache(pages: int, kv: int, size: int, seed: int = 0) -> LayerCache:
    """The second of three layers that share pages, as in a `PagedCache`."""
    memory = torch.randn(pages, 3, 2, kv * size * PAGE, generator=torch.Generator().manual_seed(seed))
    keys, values = memory[:, 1].unbind(1)
    return LayerCache(keys.view(pages, kv, size, PAGE), values.view(pages, kv, PAGE, size))


def copy_cache(cache: LayerCache) -> LayerCache:
    """Its pages lie side by side."""
    return LayerCache(cache.keys.clone(), cache.values.clone())


def spoil_unseen(cache: LayerCache, rows: Rows, heads: Heads) -> None:
    """NaN wherever no row of the pass may look."""
    seen = set(rows.slots.tolist())
    for r, (position, context, sequence) in enumerate(zip(rows.positions, rows.context, rows.sequence, strict=True)):
        oldest = 0 if heads.window is None else max(0, int(position) + 1 - heads.window)
        table = rows.tables[int(sequence)].tolist()
        seen |= {table[p // PAGE] * PAGE + p % PAGE for p in range(oldest, int(context))}
        seen |= set(rows.extra[r].tolist())
    unseen = torch.ones(len(cache.keys), PAGE, dtype=torch.bool)
    for slot in seen - {-1}:
        unseen[slot // PAGE, slot % PAGE] = False
    cache.keys.permute(0, 3, 1, 2)[unseen] = torch.nan
    cache.values.permute(0, 2, 1, 3)[unseen] = torch.nan


def make_heads(
    query: int, kv: int, size: int, *, rotary: int | None = None, norms: bool = False, context: int = 2048,
    window: int | None = None, softcap: float | None = None,
) -> Heads:  # fmt: skip
    """rotary: how many elements of a head turn, all by default, none for 0."""
    g = torch.Generator().manual_seed(size)
    half = (size if rotary is None else rotary) // 2
    angle = torch.arange(context)[:, None] * 10000.0 ** (-torch.arange(half) / max(half, 1))
    cos, sin = (angle.cos(), angle.sin()) if half else (None, None)
    weights = [Norm(1 + 0.1 * torch.randn(size, generator=g), 1e-6) if norms else None for _ in range(2)]
    return Heads(query, kv, size, size**-0.5, cos, sin, window, softcap, *weights)
