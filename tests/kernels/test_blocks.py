"""Whole blocks in one call: the very bits of the single operations, close to the twin, and nothing misshapen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from sooner.kernels.cpu import MOST_CACHES, CpuKernels
from sooner.kernels.formats import FORMATS
from sooner.kernels.interface import Block, Heads, Kernels, LayerCache, Norm, Rows
from sooner.kernels.reference import TorchKernels
from tests.support.passes import Branch, copy_cache, make_cache, make_heads, make_rows, random_weight

WIDTH, INNER = 96, 160
PASS = [Branch.chain(20, 3), Branch(30, (-1, 0, 0, 1)), Branch.chain(0, 9)]


def make_blocks(kernels: Kernels[Any], format_: str, heads: Sequence[Heads]) -> tuple[Block[Any], ...]:
    def norm(seed: int) -> Norm:
        return Norm(1 + 0.1 * torch.randn(WIDTH, generator=torch.Generator().manual_seed(seed)), 1e-5)

    def block(i: int, h: Heads) -> Block[Any]:
        q, all_heads = h.query * h.size, (h.query + 2 * h.kv) * h.size
        return Block(
            norm(i),
            kernels.pack(random_weight(all_heads, WIDTH, format_, seed=10 * i)),
            h,
            kernels.pack(random_weight(WIDTH, q, format_, seed=10 * i + 1)),
            norm(50 + i),
            kernels.pack_gated(*(random_weight(INNER, WIDTH, format_, seed=10 * i + s) for s in (2, 3))),
            kernels.pack(random_weight(WIDTH, INNER, format_, seed=10 * i + 4)),
            "silu" if i % 2 else "gelu_tanh",
        )

    return tuple(block(i, h) for i, h in enumerate(heads))


def inputs(rows: Rows) -> Tensor:
    return torch.randn(len(rows.positions), WIDTH, generator=torch.Generator().manual_seed(8))


def one_by_one(k: CpuKernels, x: Tensor, blocks: Sequence[Block[Any]], caches: list[LayerCache], rows: Rows) -> Tensor:
    for b, cache in zip(blocks, caches, strict=True):
        x = k.linear(k.attend(k.linear(x, b.qkv, norm=b.attn_norm), cache, rows, b.heads), b.out, add=x)
        x = k.linear(k.gated(x, b.gate_up, norm=b.mlp_norm, activation=b.activation), b.down, add=x)
    return x


HEADS = (make_heads(6, 2, 16), make_heads(6, 2, 16, window=5))  # layers may differ


@pytest.mark.parametrize("format_", [name for name in FORMATS if name in CpuKernels.formats])
def test_blocks_have_the_bits_of_single_operations(fast: CpuKernels, twin: TorchKernels, format_: str) -> None:
    rows, pages = make_rows(PASS)
    mine, alone, reference = ([make_cache(pages, 2, 16, seed=i) for i in range(2)] for _ in range(3))
    blocks = make_blocks(fast, format_, HEADS)
    got = fast.blocks(inputs(rows), blocks, mine, rows)
    assert torch.equal(got, one_by_one(fast, inputs(rows), blocks, alone, rows))
    assert all(torch.equal(a.keys, b.keys) and torch.equal(a.values, b.values) for a, b in zip(mine, alone))
    expected = twin.blocks(inputs(rows), make_blocks(twin, format_, HEADS), reference, rows)
    torch.testing.assert_close(got, expected, rtol=2e-4, atol=2e-4)


def test_caches_come_and_go(fast: CpuKernels) -> None:
    rows, pages = make_rows(PASS)
    blocks = make_blocks(fast, "f32", HEADS)
    caches = [[make_cache(pages, 2, 16, seed=i) for i in range(2)] for _ in range(2 * MOST_CACHES)]
    results = [fast.blocks(inputs(rows), blocks, [copy_cache(c) for c in some], rows) for some in caches + caches]
    assert all(torch.equal(result, results[0]) for result in results)


def test_misshapen_blocks_and_caches_are_refused(fast: CpuKernels) -> None:
    rows, pages = make_rows(PASS)
    caches = [make_cache(pages, 2, 16)]
    (block,) = make_blocks(fast, "f32", HEADS[:1])
    with pytest.raises(ValueError, match="down is"):
        fast.blocks(inputs(rows), (replace(block, down=block.out),), caches, rows)
    apart, close = caches[0], copy_cache(caches[0])
    misshapen = (
        make_cache(pages, 1, 16),
        LayerCache(apart.keys, close.values),
        LayerCache(close.keys.transpose(2, 3).contiguous().transpose(2, 3), close.values),
        LayerCache(close.keys.half(), close.values.half()),
    )
    for cache in misshapen:
        with pytest.raises(TypeError, match="contiguous within a page"):
            fast.blocks(inputs(rows), (block,), [cache], rows)
    two = make_blocks(fast, "f32", HEADS)
    with pytest.raises(ValueError, match=f"caches of .{pages}, {pages + 1}. pages"):
        fast.blocks(inputs(rows), two, [*caches, make_cache(pages + 1, 2, 16)], rows)
    with pytest.raises(ValueError, match="argument 2"):
        fast.blocks(inputs(rows), (block, block), caches, rows)


def test_torch_keeps_its_threads(fast: CpuKernels) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(RuntimeError, match="inside"), fast.undisturbed():
            assert torch.get_num_threads() == 1
            raise RuntimeError("inside")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
