"""What the library reads of tensors: structs and addresses, checked when they are made."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sooner.errors import InputError
from sooner.kernels.cpu.library import FORMATS, CacheStruct, HeadsStruct, MatrixStruct, RowsStruct
from sooner.kernels.interface import PAGE, Block, Heads, LayerCache, Rows

MOST_HEAD_SIZE = 256


@dataclass(frozen=True, slots=True)
class Matrix:
    """A packed weight matrix: [ceil(N / 16)][K][16], or for rounded inputs [ceil(N / 16)][K / 4][16][4]; a paired one
    with gate and up blocks in turn."""

    shape: tuple[int, int]
    format: str
    data: Tensor  # uint8
    bias: Tensor | None
    struct: MatrixStruct
    address: int  # of the struct

    @property
    def nbytes(self) -> int:
        return self.data.numel()


@dataclass(frozen=True, slots=True)
class Memory:
    """The caches of a pass as the library reads them."""

    caches: Sequence[LayerCache]
    structs: ctypes.Array[CacheStruct]
    pages: int


def item(array: ctypes.Array[Any], index: int) -> int:
    """The address of one item of an array."""
    return ctypes.addressof(array) + index * ctypes.sizeof(array._type_)


def address_of(x: Tensor, shape: tuple[int, ...]) -> int:
    """The address of a tensor that the kernels can read as it lies."""
    if x.shape != shape or x.dtype != torch.float32 or not x.is_contiguous():
        lies = "contiguous" if x.is_contiguous() else "strided"
        raise TypeError(f"{lies} {x.dtype} {tuple(x.shape)}: must be contiguous torch.float32 {tuple(shape)}")
    return x.data_ptr()


def matrix(
    shape: tuple[int, int], format_: str, data: Tensor, bias: Tensor | None, *, paired: bool, integer: bool
) -> Matrix:
    address = None if bias is None else address_of(bias, (shape[0],))
    struct = MatrixStruct(data.data_ptr(), address, *shape, FORMATS.index(format_), paired, integer)
    return Matrix(shape, format_, data, bias, struct, ctypes.addressof(struct))


def memory_of(caches: Sequence[LayerCache], blocks: Sequence[Block[Matrix]]) -> Memory:
    structs = [cache_struct(cache, block.heads) for cache, block in zip(caches, blocks, strict=True)]
    pages = {len(cache.keys) for cache in caches}
    if len(pages) > 1:
        raise ValueError(f"caches of {sorted(pages)} pages in one pass")
    return Memory(caches, (CacheStruct * len(structs))(*structs), pages.pop())


def cache_struct(cache: LayerCache, heads: Heads) -> CacheStruct:
    """Pages may lie apart, equally far in keys and values; within a page nothing may."""
    pages, step, head = len(cache.keys), cache.keys.stride(0), heads.size * PAGE
    for x, (rows, columns) in ((cache.keys, (heads.size, PAGE)), (cache.values, (PAGE, heads.size))):
        shape = (pages, heads.kv, rows, columns)
        if x.shape != shape or x.dtype != torch.float32 or x.stride() != (step, head, columns, 1):
            raise TypeError(
                f"a cache of {x.dtype} {tuple(x.shape)}, strides {x.stride()}: must be torch.float32 {shape}, "
                f"contiguous within a page, {step} floats from page to page"
            )
    return CacheStruct(cache.keys.data_ptr(), cache.values.data_ptr(), step)


def rows_struct(rows: Rows) -> RowsStruct:
    tensors = (rows.positions, rows.slots, rows.sequence, rows.context, rows.tables, rows.extra)
    if any(t.dtype != torch.int32 or not t.is_contiguous() for t in tensors):
        raise TypeError("the tensors of Rows must be contiguous int32")
    sizes = (len(rows.positions), *rows.tables.shape, rows.extra.shape[1])
    return RowsStruct(*sizes, *(t.data_ptr() for t in tensors))


def heads_struct(heads: Heads) -> HeadsStruct:
    if heads.size % 16 or not 16 <= heads.size <= MOST_HEAD_SIZE or heads.query % heads.kv:
        raise InputError(
            f"{heads.query} query and {heads.kv} kv heads of {heads.size}: the CPU kernels need whole groups and "
            f"sizes that are multiples of 16 up to {MOST_HEAD_SIZE}; use the torch kernels"
        )
    half = 0 if heads.cos is None else heads.cos.shape[1]
    query, key = heads.query_norm, heads.key_norm
    return HeadsStruct(
        heads.query, heads.kv, heads.size, half, heads.window or 0, 0, heads.scale, heads.softcap or 0.0,
        query.eps if query else 0.0, key.eps if key else 0.0,
        *(None if t is None else address_of(t, (len(t), half)) for t in (heads.cos, heads.sin)),
        *(None if norm is None else address_of(norm.weight, (heads.size,)) for norm in (query, key)),
    )  # fmt: skip
