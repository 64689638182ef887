"""One decoder for all families: what differs between them is data (`ModelConfig`), never a subclass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from sooner.cache.paged import PagedCache
from sooner.kernels.interface import Activation, Block, Heads, Kernels, LayerCache, Norm, Packed, Rows
from sooner.models.config import ModelConfig
from sooner.models.feed import Dense, Mixture, residual


@dataclass(frozen=True, slots=True)
class Projection:
    """Some of the rows of query, key and value, and the norm over their whole width where the family has one."""

    weight: Packed
    norm: Norm | None = None


@dataclass(frozen=True, slots=True)
class Layer:
    """One block: attention, then a feed-forward, each on the residual stream; families norm before, after or both."""

    attn_norm: Norm | None
    qkv: tuple[Projection, ...]
    heads: Heads
    out: Packed
    attn_post_norm: Norm | None
    mlp_norm: Norm | None
    mlp: Dense | Mixture
    mlp_post_norm: Norm | None

    def project(self, k: Kernels[Any], x: Tensor) -> Tensor:
        """Queries, keys and values, side by side: [R, (query + 2 kv) * size]."""
        parts = [k.linear(x, part.weight, norm=self.attn_norm) for part in self.qkv]
        parts = [y if part.norm is None else k.rmsnorm(y, part.norm) for y, part in zip(parts, self.qkv)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def apply(
        self, k: Kernels[Any], x: Tensor, skip: Tensor, cache: LayerCache, rows: Rows, activation: Activation
    ) -> Tensor:
        """From the kernels' single operations. x [R, inputs] is read, skip [R, width] is what the results add to."""
        skip = residual(k, skip, k.attend(self.project(k, x), cache, rows, self.heads), self.out, self.attn_post_norm)
        return self.mlp.add(k, skip, self.mlp_norm, self.mlp_post_norm, activation)

    def standard(self, activation: Activation) -> Block[Any] | None:
        """This layer as a block that the kernels run in one piece; None where it is more than that."""
        norms = self.attn_post_norm, self.mlp_post_norm, *(part.norm for part in self.qkv)
        if self.attn_norm is None or self.mlp_norm is None or len(self.qkv) > 1 or norms != (None,) * 3:
            return None
        if not isinstance(self.mlp, Dense):
            return None
        qkv, mlp = self.qkv[0].weight, self.mlp
        return Block(self.attn_norm, qkv, self.heads, self.out, self.mlp_norm, mlp.gate_up, mlp.down, activation)

    @property
    def matrices(self) -> list[Packed]:
        return [*(part.weight for part in self.qkv), self.out, *self.mlp.matrices]


@dataclass(frozen=True, slots=True)
class Decoder:
    """Weights in a backend's layout, and the pass over them. Immutable; caches come as arguments."""

    config: ModelConfig
    kernels: Kernels[Any]
    embed: Packed
    layers: tuple[Layer, ...]
    norm: Norm
    head: Packed
    device: torch.device
    blocks: tuple[Block[Any], ...] = field(init=False)  # all layers, or none where one of them is no standard block

    def __post_init__(self) -> None:
        blocks = [layer.standard(self.config.activation) for layer in self.layers]
        object.__setattr__(self, "blocks", tuple(blocks) if all(blocks) else ())

    def forward(self, rows: Rows, caches: Sequence[LayerCache], wanted: Tensor) -> Tensor:
        """One pass over `rows`; returns the logits, float32 [len(wanted), vocabulary], of the rows in `wanted`, whose
        indices ascend."""
        return self.tapped(rows, caches, wanted, ())[0]

    def tapped(
        self, rows: Rows, caches: Sequence[LayerCache], wanted: Tensor, taps: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """As `forward`, and the residual stream at `taps` for all rows: features, float32 [R, len(taps), width].

        Tap t is what enters layer t, so that 0 is the embedding, and the number of layers is the last layer's output,
        before the final norm. Taps ascend.
        """
        k, start = self.kernels, 0
        if not all(a < b for a, b in pairwise((-1, *taps, len(self.layers) + 1))):
            raise ValueError(f"taps {tuple(taps)} must ascend from 0 to at most the {len(self.layers)} layers")
        with k.undisturbed():
            x = k.embed(self.embed, rows.tokens)
            if self.config.embed_scale != 1:
                x = x * self.config.embed_scale
            features = x.new_empty(len(x), len(taps), x.shape[1])
            for i, tap in enumerate(taps):
                x, start = self._through(x, rows, caches, start, tap), tap
                features[:, i] = x
            x = self._through(x, rows, caches, start, len(self.layers))
            chosen = only(x, wanted)
            return capped(k.linear(chosen, self.head, norm=self.norm), self.config.logit_softcap), features

    def _through(self, x: Tensor, rows: Rows, caches: Sequence[LayerCache], start: int, end: int) -> Tensor:
        """x [R, width] through layers start..end-1, in one call where all of them are standard blocks."""
        if start == end:
            return x
        if self.blocks:
            return self.kernels.blocks(x, self.blocks, caches, rows, start, end)
        for layer, cache in zip(self.layers[start:end], caches[start:end], strict=True):
            x = layer.apply(self.kernels, x, x, cache, rows, self.config.activation)
        return x

    def first_layers(self, count: int) -> Decoder:
        """The same weights cut off after `count` layers: a draft that costs no memory."""
        return Decoder(self.config, self.kernels, self.embed, self.layers[:count], self.norm, self.head, self.device)

    def new_cache(self, pages: int) -> PagedCache:
        c = self.config
        return PagedCache(len(self.layers), c.kv_heads, c.head_size, pages, self.device)

    @property
    def nbytes(self) -> int:
        """Bytes of packed weights, a tied head counted once."""
        matrices = [self.embed, self.head, *(matrix for layer in self.layers for matrix in layer.matrices)]
        return sum(matrix.nbytes for matrix in {id(matrix): matrix for matrix in matrices}.values())


def only(x: Tensor, wanted: Tensor) -> Tensor:
    """Rows `wanted` of x. Their indices ascend: as many as x has are all, and cost no copy."""
    return x if len(wanted) == len(x) else x[wanted]


def capped(logits: Tensor, cap: float | None) -> Tensor:
    """cap * tanh(logits / cap), each row by itself: a vector loop's tail may round otherwise than its body, so that
    a row's bits would depend on where it lies."""
    if cap is None or not len(logits):
        return logits
    return torch.stack([torch.tanh(row / cap) for row in logits]) * cap
