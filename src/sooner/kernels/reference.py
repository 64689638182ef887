"""The readable twin of every kernel, in torch: any device, any weight format, float32 arithmetic on the CPU.

Products of few rows are written transposed, W @ x.T, because there torch's matrix library reads the weights once for
all rows, whereas x @ W.T costs more with every row. A product's summation order depends on the number of rows, so
equality between passes of different shapes holds only up to rounding here (`exact_rows` is False).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sooner.kernels.formats import DTYPES, Stored, dequantise
from sooner.kernels.interface import PAGE, Activation, Heads, LayerCache, Norm, Rows

FEW_ROWS = 24  # up to here the transposed product is the faster one


@dataclass(frozen=True, slots=True)
class Matrix:
    """A packed weight: the matrix itself, in the dtype it multiplies in."""

    values: Tensor  # [N, K]
    bias: Tensor | None
    format: str

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape[0], self.values.shape[1]

    @property
    def nbytes(self) -> int:
        return self.values.nbytes


class TorchKernels:
    """Implements `interface.Kernels`. dtype is that of weights and products; activations between them are float32."""

    name = "torch"
    exact_rows = False

    def __init__(self, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> None:
        self.device = torch.device(device)
        self.dtype = dtype
        self.format = next(name for name, known in DTYPES.items() if known == dtype)

    def pack(self, weight: Stored, bias: Tensor | None = None) -> Matrix:
        values = dequantise(weight).to(self.device, self.dtype)
        return Matrix(values, None if bias is None else bias.to(self.device, torch.float32), self.format)

    def pack_gated(self, gate: Stored, up: Stored) -> Matrix:
        both = torch.cat([dequantise(gate), dequantise(up)])
        return Matrix(both.to(self.device, self.dtype), None, self.format)

    def embed(self, table: Matrix, tokens: Tensor) -> Tensor:
        return table.values[tokens].to(torch.float32)

    def rmsnorm(self, x: Tensor, norm: Norm, add: Tensor | None = None) -> Tensor:
        y = _rmsnorm(x, norm)
        return y if add is None else y + add

    def linear(self, x: Tensor, weight: Matrix, *, norm: Norm | None = None, add: Tensor | None = None) -> Tensor:
        y = self._product(x if norm is None else _rmsnorm(x, norm), weight.values)
        if weight.bias is not None:
            y = y + weight.bias
        return y if add is None else y + add

    def gated(self, x: Tensor, weight: Matrix, *, norm: Norm | None = None, activation: Activation) -> Tensor:
        gate, up = self.linear(x, weight, norm=norm).chunk(2, dim=1)
        return (F.silu(gate) if activation == "silu" else F.gelu(gate, approximate="tanh")) * up

    def attend(self, qkv: Tensor, cache: LayerCache, rows: Rows, heads: Heads) -> Tensor:
        q, k, v = _split(qkv, rows, heads)
        _append(cache, rows.slots, k, v)
        if not len(q):
            return q.flatten(1)
        slots, seen = visible(rows, heads.window)
        keys = cache.keys[slots // PAGE, :, :, slots % PAGE]  # [S, T, kv, size]
        values = cache.values[slots // PAGE, :, slots % PAGE, :]
        q = pad_rows(q.view(len(q), heads.kv, -1, heads.size), rows)  # [S, r, kv, group, size]
        scores = torch.einsum("srkgd,stkd->skgrt", q, keys) * heads.scale
        if heads.softcap is not None:
            scores = heads.softcap * torch.tanh(scores / heads.softcap)
        mask = pad_rows(seen, rows, fill=True)[:, None, None]  # padding sees everything: no 0/0
        weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
        mixed = torch.einsum("skgrt,stkd->srkgd", weights, values).flatten(2)
        return mixed[rows.sequence.long(), _rank(rows)]

    def _product(self, x: Tensor, weight: Tensor) -> Tensor:
        x = x.to(self.dtype)
        if len(x) <= FEW_ROWS and self.device.type == "cpu":
            return torch.mm(weight, x.t()).t().contiguous().to(torch.float32)
        return F.linear(x, weight).to(torch.float32)


def visible(rows: Rows, window: int | None) -> tuple[Tensor, Tensor]:
    """Slots [S, T] of each sequence's stored entries, and a mask [R, T] of those that each row sees."""
    entries = torch.arange(rows.tables.shape[1] * PAGE, device=rows.tables.device)
    if not rows.extra.shape[1]:
        entries = entries[: int(rows.context.max())]
    slots = rows.tables.long()[:, entries // PAGE] * PAGE + entries % PAGE
    seen = entries < rows.context[:, None]
    oldest = 0 if window is None else rows.positions[:, None] - window + 1
    seen &= entries >= oldest
    if rows.extra.shape[1]:
        depth = torch.arange(rows.extra.shape[1], device=slots.device)
        extra = rows.extra.masked_fill(rows.context[:, None] + depth < oldest, -1)
        seen |= (slots[rows.sequence.long()][:, None, :] == extra[:, :, None]).any(dim=1)
    return slots, seen


def _rank(rows: Rows) -> Tensor:
    """Each row's number among its sequence's rows, which lie side by side: [R]."""
    count = torch.bincount(rows.sequence.long())
    return torch.arange(len(rows.sequence), device=count.device) - (count.cumsum(0) - count)[rows.sequence.long()]


def pad_rows(x: Tensor, rows: Rows, fill: float = 0.0) -> Tensor:
    """[R, ...] -> [S, most rows of a sequence, ...]."""
    rank = _rank(rows)
    padded = x.new_full((len(rows.tables), int(rank.max()) + 1, *x.shape[1:]), fill)
    padded[rows.sequence.long(), rank] = x
    return padded


def _rmsnorm(x: Tensor, norm: Norm) -> Tensor:
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + norm.eps) * norm.weight


def _split(qkv: Tensor, rows: Rows, heads: Heads) -> tuple[Tensor, Tensor, Tensor]:
    """Queries [R, query, size], keys and values [R, kv, size], normalised and rotated."""
    q, k, v = torch.split(qkv.view(len(qkv), -1, heads.size), [heads.query, heads.kv, heads.kv], dim=1)
    q = q if heads.query_norm is None else _rmsnorm(q, heads.query_norm)
    k = k if heads.key_norm is None else _rmsnorm(k, heads.key_norm)
    return _rotate(q, rows.positions, heads), _rotate(k, rows.positions, heads), v


def _rotate(x: Tensor, positions: Tensor, heads: Heads) -> Tensor:
    """Rotary positions (Su et al. 2021) on half-split pairs; elements beyond 2 * cos.shape[1] pass through."""
    if heads.cos is None or heads.sin is None:
        return x
    cos, sin = heads.cos[positions.long(), None, :], heads.sin[positions.long(), None, :]
    half = cos.shape[-1]
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], dim=-1)


def _append(cache: LayerCache, slots: Tensor, k: Tensor, v: Tensor) -> None:
    page, offset = slots.long() // PAGE, slots.long() % PAGE
    cache.keys[page, :, :, offset] = k.to(cache.keys.dtype)
    cache.values[page, :, offset, :] = v.to(cache.values.dtype)
