"""What a backend must compute for a target pass. `reference.py` is the readable torch twin, `cpu/` the fast one.

Activations are float32 [rows, width]. A *row* is one token position of one sequence; a pass carries the rows of many
sequences side by side. On `cpu` a row's result never depends on the other rows of the pass, to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sooner.kernels.formats import Stored

PAGE = 16  # token positions in a cache page
Activation = Literal["silu", "gelu_tanh"]


@dataclass(frozen=True, slots=True)
class Norm:
    """RMS normalisation: x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich 2019)."""

    weight: Tensor  # float32 [width]
    eps: float


@dataclass(frozen=True, slots=True)
class Heads:
    """The geometry of one layer's attention; `cos`/`sin` are None in a layer without rotary positions."""

    query: int
    kv: int
    size: int
    scale: float
    cos: Tensor | None = None  # float32 [context, rotary/2], half-split pairs (i, i + rotary/2)
    sin: Tensor | None = None
    window: int | None = None  # a row sees itself and the window - 1 positions before it
    softcap: float | None = None  # scores become softcap * tanh(score / softcap)
    query_norm: Norm | None = None  # over each head, before rotary
    key_norm: Norm | None = None


@dataclass(frozen=True, slots=True)
class LayerCache:
    """Keys and values of one layer, in pages of 16 positions.

    keys [pages, kv heads, size, 16] (positions innermost, so that a vector holds 16 keys),
    values [pages, kv heads, 16, size].
    """

    keys: Tensor
    values: Tensor


@dataclass(frozen=True, slots=True)
class Rows:
    """Where the rows of one pass sit. All tensors are on the backend's device; int32 but for `tokens` (int64).

    A *slot* is page * 16 + offset. Row r writes its key and value to slots[r] and then sees, in this order, the cache
    positions first..context[r]-1 of its sequence (through tables[sequence[r]]), then the slots listed in extra[r]:
    the tree ancestors and itself. A row of a chain has context = position + 1 and no extras. Position p of what a row
    sees (p < context: the cache; p = context + j: extra j) is treated identically in both cases, so that a tree row
    and the chain row that it becomes have equal bits.
    """

    tokens: Tensor  # [R] int64
    positions: Tensor  # [R]
    slots: Tensor  # [R]
    sequence: Tensor  # [R] index into tables
    context: Tensor  # [R]
    tables: Tensor  # [sequences, pages at most], page ids, padded with 0
    extra: Tensor  # [R, E], padded with -1; E may be 0


class Packed(Protocol):
    """A weight matrix in the backend's own layout: `shape` is (outputs N, inputs K)."""

    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def format(self) -> str: ...
    @property
    def nbytes(self) -> int: ...


P = TypeVar("P", bound=Packed)


class Chooser(Protocol):
    """The choice of a token in the backend: see `sampling.road.Road.choose`, whose token it returns."""

    def __call__(
        self, logits: NDArray[np.float32], *, temperature: float, top_k: int, top_p: float, min_p: float,
        seed: int, sample: int, position: int,
    ) -> int | None:  # fmt: skip
        """logits [V], after everything that depends on history. None where the road itself must decide or raise."""
        ...


@dataclass(frozen=True, slots=True)
class Block(Generic[P]):
    """A standard decoder block: x += out(attend(qkv(norm(x)))), then x += down(gated(norm(x)))."""

    attn_norm: Norm
    qkv: P
    heads: Heads
    out: P
    mlp_norm: Norm
    gate_up: P
    down: P
    activation: Activation


class Kernels(Protocol[P]):
    """A backend; P is its own packed matrix. `pack*` may keep or copy; what they return is opaque to the caller."""

    name: str
    exact_rows: bool  # True when a row's bits do not depend on its neighbours
    activations: str  # what inputs of products with weights in groups are rounded to (`formats.PRECISIONS`)
    formats: tuple[str, ...]  # of weights that `pack` takes

    @property
    def choose(self) -> Chooser | None:
        """None where the backend leaves the choice to the road."""
        ...

    def undisturbed(self) -> AbstractContextManager[None]:
        """Around a pass: keeps other threads of this process, torch's above all, from the cores of the kernels."""
        ...

    def pack(self, weight: Stored, bias: Tensor | None = None) -> P:
        """weight [N, K] for `linear` and `embed`."""
        ...

    def pack_gated(self, gate: Stored, up: Stored) -> P:
        """gate and up [M, K] for `gated`; the shape of the result is (2 M, K)."""
        ...

    def embed(self, table: P, tokens: Tensor) -> Tensor:
        """Rows `tokens` of the table: float32 [R, K]."""
        ...

    def rmsnorm(self, x: Tensor, norm: Norm, add: Tensor | None = None) -> Tensor:
        """norm(x), plus `add` afterwards."""
        ...

    def linear(self, x: Tensor, weight: P, *, norm: Norm | None = None, add: Tensor | None = None) -> Tensor:
        """norm(x) @ weight.T + bias + add: float32 [R, N]."""
        ...

    def gated(self, x: Tensor, weight: P, *, norm: Norm | None = None, activation: Activation) -> Tensor:
        """activation(norm(x) @ gate.T) * (norm(x) @ up.T): float32 [R, M]."""
        ...

    def attend(self, qkv: Tensor, cache: LayerCache, rows: Rows, heads: Heads) -> Tensor:
        """qkv [R, (query + 2 kv) * size] -> [R, query * size].

        Normalises heads and rotates where `heads` says so, writes every row's key and value to its slot, then each
        query row attends to what it sees (`Rows`). Softmax in float32.
        """
        ...

    def blocks(
        self, x: Tensor, blocks: Sequence[Block[P]], caches: Sequence[LayerCache], rows: Rows,
        start: int = 0, end: int | None = None,
    ) -> Tensor:  # fmt: skip
        """x [R, width] through blocks[start:end], block i with cache i; x may be written over.

        Parts of one sequence, rather than shorter sequences: backends remember what they know of a sequence by its id.
        """
        ...
