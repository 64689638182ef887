"""The readable twin of every kernel, in torch: any device, any weight format, float32 arithmetic on the CPU.

Products of few rows are written transposed in float32, W @ x.T, because there torch's matrix library reads the weights
once for all rows, whereas x @ W.T costs more with every row. A product's summation order depends on the number of
rows, so equality between passes of different shapes holds only up to rounding here (`exact_rows` is False).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import gcd

import torch
import torch.nn.functional as F
from torch import Tensor

from sooner.kernels.formats import DTYPES, FORMATS, ROUNDED, Stored, dequantise
from sooner.kernels.interface import PAGE, Activation, Block, Heads, LayerCache, Norm, Rows

FEW_ROWS = 24  # up to here the transposed product is the faster one
BLOCKS = 16  # at most, of a weight that meets one row


@dataclass(frozen=True, slots=True)
class Matrix:
    """A packed weight: the matrix itself, in the dtype it multiplies in."""

    values: Tensor  # [N, K]
    bias: Tensor | None
    format: str
    rounds: bool = False  # its inputs to int8

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
    formats: tuple[str, ...] = tuple(FORMATS)
    choose = None

    def __init__(
        self, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32, activations: str = "float32"
    ) -> None:
        self.device = torch.device(device)
        self.activations = activations
        self.dtype = dtype
        self._pass: Rows | None = None
        self._views: dict[tuple[int | None, int], View] = {}
        self.format = next(name for name, known in DTYPES.items() if known == dtype)

    def undisturbed(self) -> AbstractContextManager[None]:
        return nullcontext()

    def pack(self, weight: Stored, bias: Tensor | None = None) -> Matrix:
        values = dequantise(weight).to(self.device, self.dtype)
        bias = None if bias is None else bias.to(self.device, torch.float32)
        return Matrix(values, bias, self.format, self._rounds(weight))

    def pack_gated(self, gate: Stored, up: Stored) -> Matrix:
        both = torch.cat([dequantise(gate), dequantise(up)])
        return Matrix(both.to(self.device, self.dtype), None, self.format, self._rounds(gate))

    def _rounds(self, weight: Stored) -> bool:
        return self.activations == "int8" and weight.format not in DTYPES

    def embed(self, table: Matrix, tokens: Tensor) -> Tensor:
        return table.values[tokens].to(torch.float32)

    def rmsnorm(self, x: Tensor, norm: Norm, add: Tensor | None = None) -> Tensor:
        y = _rmsnorm(x, norm)
        return y if add is None else y + add

    def linear(self, x: Tensor, weight: Matrix, *, norm: Norm | None = None, add: Tensor | None = None) -> Tensor:
        x = x if norm is None else _rmsnorm(x, norm)
        y = self._product(rounded(x) if weight.rounds else x, weight.values)
        if weight.bias is not None:
            y = y + weight.bias
        return y if add is None else y + add

    def gated(self, x: Tensor, weight: Matrix, *, norm: Norm | None = None, activation: Activation) -> Tensor:
        gate, up = self.linear(x, weight, norm=norm).chunk(2, dim=1)
        return (F.silu(gate) if activation == "silu" else F.gelu(gate, approximate="tanh")) * up

    def blocks(
        self, x: Tensor, blocks: Sequence[Block[Matrix]], caches: Sequence[LayerCache], rows: Rows,
        start: int = 0, end: int | None = None,
    ) -> Tensor:  # fmt: skip
        for b, cache in list(zip(blocks, caches, strict=True))[start:end]:
            x = self.linear(self.attend(self.linear(x, b.qkv, norm=b.attn_norm), cache, rows, b.heads), b.out, add=x)
            x = self.linear(self.gated(x, b.gate_up, norm=b.mlp_norm, activation=b.activation), b.down, add=x)
        return x

    def attend(self, qkv: Tensor, cache: LayerCache, rows: Rows, heads: Heads) -> Tensor:
        view = self._view(rows, heads)
        q, k, v = _split(qkv, view, heads)
        cache.keys[view.page, :, :, view.offset] = k.to(cache.keys.dtype)
        cache.values[view.page, :, view.offset, :] = v.to(cache.values.dtype)
        if not len(q):
            return q.flatten(1)
        most = view.bias.shape[-1]
        keys = view.gather(cache.keys).permute(0, 2, 3, 1, 4).flatten(3)[..., :most]  # [S, kv, size, T]
        values = view.gather(cache.values).transpose(1, 2).flatten(2, 3)[..., :most, :]  # [S, kv, T, size]
        scores = (view.pad(q.view(len(q), heads.kv, -1, heads.size)) @ keys).mul_(heads.scale)  # [S, kv, group * r, T]
        if heads.softcap is not None:
            scores = heads.softcap * torch.tanh(scores / heads.softcap)
        seen = scores.view(*scores.shape[:2], -1, *view.bias.shape[-2:]) + view.bias
        return view.unpad(seen.softmax(dim=-1).flatten(2, 3) @ values)

    def _view(self, rows: Rows, heads: Heads) -> View:
        """What a pass's rows see; made once for all layers that look alike."""
        if self._pass is not rows:
            self._pass, self._views = rows, {}
        key = (heads.window, id(heads.cos))
        if key not in self._views:
            self._views[key] = View.of(rows, heads)
        return self._views[key]

    def _product(self, x: Tensor, weight: Tensor) -> Tensor:
        x, rows = x.to(self.dtype), len(x)
        if rows > FEW_ROWS or self.device.type != "cpu" or self.dtype != torch.float32:
            return F.linear(x, weight).to(torch.float32)
        if rows == 1:  # a batch of products with blocks of the weight's rows: alone torch's is the slower
            parts = gcd(len(weight), BLOCKS)
            blocks = torch.bmm(weight.view(parts, -1, weight.shape[1]), x.t().expand(parts, -1, -1))
            return blocks.view(1, -1)
        return torch.mm(weight, x.t()).t().contiguous()


@dataclass(frozen=True, slots=True)
class View:
    """Where the rows of a pass look, in a form that torch gathers: rows padded to [S sequences, r rows at most]."""

    sequence: Tensor  # [R]
    rank: Tensor  # [R] a row's number among its sequence's rows, which lie side by side
    most: int  # r
    page: Tensor  # [R] where the row's own key and value go
    offset: Tensor
    pages: Tensor  # [S, pages of T entries] of each sequence's stored entries
    bias: Tensor  # [S, 1, 1, r, T] 0 where seen, else -inf; padding sees everything, lest it be 0/0
    cos: Tensor | None  # [R, 1, size], of both halves of a pair, 1 beyond
    sin: Tensor | None  # its first half negative, 0 beyond
    half: int  # of the elements that are rotated

    @classmethod
    def of(cls, rows: Rows, heads: Heads) -> View:
        sequence, slots = rows.sequence.long(), rows.slots.long()
        count = torch.bincount(sequence, minlength=len(rows.tables))
        rank = torch.arange(len(sequence), device=count.device) - (count.cumsum(0) - count)[sequence]
        most = int(count.max()) if len(sequence) else 0
        pages, seen = visible(rows, heads.window)
        bias = torch.zeros(len(rows.tables), most, seen.shape[1], device=seen.device)
        bias[sequence, rank] = bias[sequence, rank].masked_fill(~seen, -torch.inf)
        turns = _turns(rows, heads)
        bias = bias[:, None, None]
        return cls(sequence, rank, most, slots // PAGE, slots % PAGE, pages, bias, *turns)

    @property
    def single(self) -> bool:
        """Every sequence has one row: there is nothing to pad."""
        return self.most == 1 and len(self.sequence) == len(self.pages)

    def gather(self, cache: Tensor) -> Tensor:
        """[pages, ...] -> [S, pages of T entries, ...]; index_select, because indexing takes twice its time."""
        return cache.index_select(0, self.pages.flatten()).view(*self.pages.shape, *cache.shape[1:])

    def pad(self, x: Tensor) -> Tensor:
        """[R, kv, group, size] -> [S, kv, group * r, size]."""
        if self.single:
            return x
        padded = x.new_zeros(len(self.pages), self.most, *x.shape[1:])
        padded[self.sequence, self.rank] = x
        return padded.permute(0, 2, 3, 1, 4).flatten(2, 3)

    def unpad(self, x: Tensor) -> Tensor:
        """[S, kv, group * r, size] -> [R, kv * group * size]."""
        if self.single:
            return x.flatten(1)
        return (
            x.view(*x.shape[:2], -1, self.most, x.shape[-1]).permute(0, 3, 1, 2, 4).flatten(2)[self.sequence, self.rank]
        )


def _turns(rows: Rows, heads: Heads) -> tuple[Tensor | None, Tensor | None, int]:
    """View.cos, View.sin and View.half."""
    if heads.cos is None or heads.sin is None:
        return None, None, 0
    cos, sin = (table[rows.positions.long(), None, :] for table in (heads.cos, heads.sin))
    rest = cos.new_zeros(len(cos), 1, heads.size - 2 * cos.shape[-1])
    return torch.cat([cos, cos, rest + 1], dim=-1), torch.cat([-sin, sin, rest], dim=-1), cos.shape[-1]


def visible(rows: Rows, window: int | None) -> tuple[Tensor, Tensor]:
    """Pages [S, pages of T entries] with each sequence's entries, and a mask [R, T] of those that each row sees."""
    pages = rows.tables.long()
    entries = torch.arange(pages.shape[1] * PAGE, device=pages.device)
    if not rows.extra.shape[1]:
        entries = entries[: int(rows.context.max()) if len(rows.context) else 0]
        pages = pages[:, : -(-len(entries) // PAGE)]
    seen = entries < rows.context[:, None]
    oldest = torch.zeros_like(rows.positions)[:, None]
    if window is not None:
        oldest = rows.positions[:, None] - window + 1
        seen &= entries >= oldest
    if rows.extra.shape[1]:
        depth = torch.arange(rows.extra.shape[1], device=pages.device)
        extra = rows.extra.masked_fill(rows.context[:, None] + depth < oldest, -1)
        slots = (pages[:, :, None] * PAGE + torch.arange(PAGE, device=pages.device)).flatten(1)
        stored = slots[rows.sequence.long()][:, None, :] == extra[:, :, None]
        # Tables are padded with page 0, which may be the sequence's own too: an entry is seen where it comes first.
        seen |= (stored & (stored.cumsum(dim=-1) == 1)).any(dim=1)
    return pages, seen


def rounded(x: Tensor) -> Tensor:
    """x [R, K], K a multiple of 32, as integer products see it: whole multiples of a scale, which is the greatest
    magnitude of 32 neighbours / 127; zeros where that is below 2^-100, NaN where it is not finite."""
    groups = x.view(len(x), x.shape[1] // ROUNDED, ROUNDED)
    most = groups.abs().amax(dim=2, keepdim=True)
    scale = torch.where(most < 2.0**-100, 0.0, most / 127)
    q = torch.where(scale > 0, (groups / scale).round(), 0.0)  # ties to even
    return (q * scale).view_as(x)


def _rmsnorm(x: Tensor, norm: Norm) -> Tensor:
    return F.rms_norm(x, norm.weight.shape, norm.weight, norm.eps)


def _split(qkv: Tensor, view: View, heads: Heads) -> tuple[Tensor, Tensor, Tensor]:
    """Queries [R, query, size], keys and values [R, kv, size], normalised and rotated."""
    all_heads = qkv.view(len(qkv), heads.query + 2 * heads.kv, heads.size)
    if heads.query_norm is None and heads.key_norm is None:
        turned = _rotate(all_heads[:, : heads.query + heads.kv], view)
        return turned[:, : heads.query], turned[:, heads.query :], all_heads[:, heads.query + heads.kv :]
    q, k, v = torch.split(all_heads, [heads.query, heads.kv, heads.kv], dim=1)
    q = q if heads.query_norm is None else _rmsnorm(q, heads.query_norm)
    k = k if heads.key_norm is None else _rmsnorm(k, heads.key_norm)
    return _rotate(q, view), _rotate(k, view), v


def _rotate(x: Tensor, view: View) -> Tensor:
    """Rotary positions (Su et al. 2021) on half-split pairs (i, i + half); elements beyond them pass through."""
    if view.cos is None or view.sin is None:
        return x
    half = view.half
    turned = torch.cat([x[..., half : 2 * half], x[..., :half], x[..., 2 * half :]], dim=-1)
    return torch.addcmul(x * view.cos, turned, view.sin)
