"""The fast backend for CPUs: C++ behind `interface.Kernels`. native/README.md tells how it works."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sooner.errors import InputError
from sooner.kernels.cpu import library
from sooner.kernels.cpu.library import ACTIVATIONS, FORMATS, BlockStruct, HeadsStruct, RowsStruct
from sooner.kernels.cpu.structs import (
    Matrix,
    Memory,
    address_of,
    cache_struct,
    heads_struct,
    item,
    matrix,
    memory_of,
    rows_struct,
)
from sooner.kernels.formats import DTYPES, LAYOUTS, ROUNDED, Stored
from sooner.kernels.interface import PAGE, Activation, Block, Heads, LayerCache, Norm, Rows
from sooner.kernels.memory import Rooms

MOST_CACHES = 4  # whose addresses are remembered: a target's and a few drafters'


def unavailable() -> str | None:
    """None when this backend can be used, else the reason."""
    return library.reason_missing()


def isa() -> str:
    """The instruction set in use: generic, avx2, avxvnni, avx512, avx512vnni, neon or neondot."""
    return str(library.load().sooner_isa().decode())


@dataclass(frozen=True, slots=True)
class Stack:
    """Blocks as the library reads them; heads: those that reach the fewest positions; scratch: floats for each row."""

    blocks: Sequence[Block[Matrix]]
    structs: ctypes.Array[BlockStruct]
    heads: Heads
    scratch: int


class CpuKernels:
    """Implements `interface.Kernels` with a pool of `threads` threads of its own.

    Calls from several Python threads take turns.
    """

    name = "cpu"
    exact_rows = True
    formats: tuple[str, ...] = FORMATS

    def __init__(self, threads: int, activations: str = "float32") -> None:
        if threads < 1:
            raise InputError(f"threads is {threads}, must be at least 1; use the number of cores")
        self.threads = threads
        self.activations = activations
        self._library = library.load()
        self._pool: int = self._library.sooner_pool(threads)
        self._rooms = Rooms()
        self._rows: tuple[Rows, int, RowsStruct, int] | None = None  # of the pass at hand
        self._norms: dict[int, tuple[Norm, int]] = {}  # by id; the norm is kept, so that the id stays its own
        self._heads: dict[int, tuple[Heads, HeadsStruct, int]] = {}
        self._blocks: dict[int, Stack] = {}  # by id of a sequence of blocks, which is kept
        self._caches: dict[tuple[int, int], Memory] = {}  # by ids of caches and blocks; the latest are kept
        weakref.finalize(self, self._library.sooner_pool_free, self._pool)

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """After a parallel operation torch's threads spin for milliseconds: in a pass they get none to work on."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)

    def pack(self, weight: Stored, bias: Tensor | None = None) -> Matrix:
        n, k = self._matrix_shape(weight)
        data = self._room(n, k, weight.format)
        self._fill(data, weight, 0, 1)
        return matrix((n, k), weight.format, data, bias, paired=False, integer=self._rounds(weight.format))

    def pack_gated(self, gate: Stored, up: Stored) -> Matrix:
        n, k = self._matrix_shape(gate)
        if (up.shape, up.format) != (gate.shape, gate.format):
            raise ValueError(f"gate is {gate.format} {gate.shape}, up is {up.format} {up.shape}: they must be alike")
        data = self._room(-(-n // PAGE) * 2 * PAGE, k, gate.format)
        self._fill(data, gate, 0, 2)
        self._fill(data, up, 1, 2)
        return matrix((2 * n, k), gate.format, data, None, paired=True, integer=self._rounds(gate.format))

    def embed(self, table: Matrix, tokens: Tensor) -> Tensor:
        (rows,) = tokens.shape
        out = torch.empty(rows, table.shape[1])
        if tokens.dtype != torch.int64 or not tokens.is_contiguous():
            raise TypeError(f"tokens are {tokens.dtype}, must be contiguous int64")
        if self._library.sooner_embed(self._pool, table.address, tokens.data_ptr(), rows, out.data_ptr()):
            raise ValueError(f"a token is outside the table of {table.shape[0]} rows: {tokens.tolist()}")
        return out

    def rmsnorm(self, x: Tensor, norm: Norm, add: Tensor | None = None) -> Tensor:
        rows, width = shape = x.shape
        out = torch.empty(rows, width)
        plus = None if add is None else address_of(add, shape)
        self._library.sooner_rmsnorm(
            self._pool, address_of(x, shape), rows, width, self._norm(norm, width), norm.eps, plus, out.data_ptr()
        )
        return out

    def linear(self, x: Tensor, weight: Matrix, *, norm: Norm | None = None, add: Tensor | None = None) -> Tensor:
        return self._product(x, weight, weight.shape[0], norm, add, 0)

    def gated(self, x: Tensor, weight: Matrix, *, norm: Norm | None = None, activation: Activation) -> Tensor:
        return self._product(x, weight, weight.shape[0] // 2, norm, None, ACTIVATIONS.index(activation))

    def _product(
        self, x: Tensor, weight: Matrix, width: int, norm: Norm | None, add: Tensor | None, activation: int
    ) -> Tensor:
        rows, k = x.shape[0], weight.shape[1]
        out = torch.empty(rows, width)
        scale, eps = (None, 0.0) if norm is None else (self._norm(norm, k), norm.eps)
        plus = None if add is None else address_of(add, (rows, width))
        self._library.sooner_linear(
            self._pool, weight.address, address_of(x, (rows, k)), rows, activation, scale, eps, plus, out.data_ptr()
        )
        return out

    def _norm(self, norm: Norm, width: int) -> int:
        """The address of a norm's weight, checked when it is first seen."""
        known = self._norms.get(id(norm))
        if known is None:
            known = self._norms[id(norm)] = (norm, address_of(norm.weight, norm.weight.shape))
        if norm.weight.numel() != width:
            raise ValueError(f"a norm of {norm.weight.numel()} for inputs of {width}")
        return known[1]

    def attend(self, qkv: Tensor, cache: LayerCache, rows: Rows, heads: Heads) -> Tensor:
        n, memory = qkv.shape[0], cache_struct(cache, heads)
        out = torch.empty(n, heads.query * heads.size)
        if n:
            self._library.sooner_attend(
                self._pool,
                address_of(qkv, (n, (heads.query + 2 * heads.kv) * heads.size)),
                ctypes.addressof(memory), self._rows_of(rows, len(cache.keys), n, heads), self._heads_of(heads),
                out.data_ptr(),
            )  # fmt: skip
        return out

    def blocks(
        self, x: Tensor, blocks: Sequence[Block[Matrix]], caches: Sequence[LayerCache], rows: Rows,
        start: int = 0, end: int | None = None,
    ) -> Tensor:  # fmt: skip
        n, width = x.shape
        stack, memory = self._stack_of(blocks, width), self._memory_of(caches, blocks)
        scratch = torch.empty(n * stack.scratch)
        address = self._rows_of(rows, memory.pages, n, stack.heads)
        part = range(len(blocks))[start:end]
        self._library.sooner_blocks(
            self._pool, item(stack.structs, part.start), len(part), item(memory.structs, part.start), address,
            address_of(x, (n, width)), scratch.data_ptr(),
        )  # fmt: skip
        return x

    def choose(
        self, logits: NDArray[np.float32], *, temperature: float, top_k: int, top_p: float, min_p: float,
        seed: int, sample: int, position: int,
    ) -> int | None:  # fmt: skip
        """`Road.choose` on an adjusted row [V]: the same token.

        None where the road itself must decide or raise: the row has NaN or no finite greatest logit, or rounding alone
        tells whether a token belongs to top-p.
        """
        if logits.dtype != np.float32 or logits.ndim != 1 or not logits.flags.c_contiguous:
            raise TypeError(f"logits are {logits.dtype} {logits.shape}, must be contiguous float32 [V]")
        token: int = self._library.sooner_choose(
            self._pool, logits.ctypes.data, logits.shape[0], temperature, top_k, top_p,
            float(np.log(min_p)) if min_p > 0 else -np.inf, seed, sample, position,
        )  # fmt: skip
        return token if token >= 0 else None

    def _rows_of(self, rows: Rows, pages: int, count: int, heads: Heads) -> int:
        """The address of the pass's struct, made and checked once for all layers."""
        if self._rows is None or self._rows[0] is not rows or self._rows[1] != pages:
            struct = rows_struct(rows)
            wrong: bytes | None = self._library.sooner_check_rows(ctypes.byref(struct), pages)
            if wrong:
                raise ValueError(f"rows of a pass: {wrong.decode()} (of {pages} pages): {rows}")
            self._rows = (rows, pages, struct, ctypes.addressof(struct))
        struct = self._rows[2]
        if struct.rows != count or (heads.cos is not None and struct.last_position >= heads.cos.shape[0]):
            raise ValueError(f"{count} rows of qkv for {struct.rows} rows, last position {struct.last_position}")
        return self._rows[3]

    def _heads_of(self, heads: Heads) -> int:
        known = self._heads.get(id(heads))
        if known is None:
            struct = heads_struct(heads)
            known = self._heads[id(heads)] = (heads, struct, ctypes.addressof(struct))
        return known[2]

    def _stack_of(self, blocks: Sequence[Block[Matrix]], width: int) -> Stack:
        known = self._blocks.get(id(blocks))
        if known is None:
            structs = [self._block_struct(block, width) for block in blocks]
            heads = min((block.heads for block in blocks), key=_positions)
            scratch = max(b.qkv.shape[0] + b.out.shape[1] + b.down.shape[1] for b in blocks)
            known = Stack(blocks, (BlockStruct * len(structs))(*structs), heads, scratch)
            self._blocks[id(blocks)] = known
        return known

    def _block_struct(self, b: Block[Matrix], width: int) -> BlockStruct:
        q, kv = b.heads.query * b.heads.size, b.heads.kv * b.heads.size
        inner = b.gate_up.shape[0] // 2
        expected = {
            "qkv": (q + 2 * kv, width),
            "out": (width, q),
            "gate_up": (2 * inner, width),
            "down": (width, inner),
        }
        for name, shape in expected.items():
            if getattr(b, name).shape != shape:
                raise ValueError(f"{name} is {getattr(b, name).shape} where the block needs {shape}")
        return BlockStruct(
            *(matrix.address for matrix in (b.qkv, b.out, b.gate_up, b.down)), self._heads_of(b.heads),
            self._norm(b.attn_norm, width), self._norm(b.mlp_norm, width), b.attn_norm.eps, b.mlp_norm.eps,
            ACTIVATIONS.index(b.activation),
        )  # fmt: skip

    def _memory_of(self, caches: Sequence[LayerCache], blocks: Sequence[Block[Matrix]]) -> Memory:
        key = id(caches), id(blocks)
        known = self._caches.get(key)
        if known is None:
            while len(self._caches) >= MOST_CACHES:
                del self._caches[next(iter(self._caches))]
            known = self._caches[key] = memory_of(caches, blocks)
        return known

    def _rounds(self, format_: str) -> bool:
        """Whether products with such weights round their inputs."""
        return self.activations == "int8" and format_ not in DTYPES

    def _matrix_shape(self, weight: Stored) -> tuple[int, int]:
        n, k = weight.shape
        if weight.format not in FORMATS:
            raise InputError(f"weight format {weight.format} has no CPU kernel; known are {', '.join(FORMATS)}")
        group = ROUNDED if self._rounds(weight.format) else LAYOUTS[weight.format].block
        if k % group:
            raise InputError(
                f"{weight.format} needs a multiple of {group} inputs, this matrix is {n} x {k}; store it as f16"
            )
        return n, k

    def _room(self, n: int, k: int, format_: str) -> Tensor:
        return self._rooms.take(self._library.sooner_packed_bytes(n, k, FORMATS.index(format_)))

    def _fill(self, data: Tensor, source: Stored, first: int, every: int) -> None:
        n, k = source.shape
        raw = source.data.contiguous()
        self._library.sooner_pack(
            self._pool, raw.data_ptr(), n, k, FORMATS.index(source.format), first, every, data.data_ptr(),
            self._rounds(source.format),
        )  # fmt: skip


def _positions(heads: Heads) -> float:
    """How many positions there are rotations for."""
    return float("inf") if heads.cos is None else heads.cos.shape[0]
