"""One decoder for all families: what differs between them is data (`ModelConfig`), never a subclass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sooner.cache.paged import PagedCache
from sooner.kernels.formats import Stored, concatenate, convert, dequantise, store
from sooner.kernels.interface import Heads, Kernels, LayerCache, Norm, Packed, Rows
from sooner.models.config import ModelConfig


@dataclass(frozen=True, slots=True)
class Layer:
    """One block: attention, then a gated feed-forward, each on the normed residual stream."""

    attn_norm: Norm
    qkv: Packed
    out: Packed
    mlp_norm: Norm
    gate_up: Packed
    down: Packed
    heads: Heads


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

    def forward(self, rows: Rows, caches: Sequence[LayerCache], wanted: Tensor) -> Tensor:
        """One pass over `rows`; returns the logits, float32 [len(wanted), vocabulary], of the rows in `wanted`."""
        k = self.kernels
        x = k.embed(self.embed, rows.tokens)
        for layer, cache in zip(self.layers, caches, strict=True):
            qkv = k.linear(x, layer.qkv, norm=layer.attn_norm)
            x = k.linear(k.attend(qkv, cache, rows, layer.heads), layer.out, add=x)
            gated = k.gated(x, layer.gate_up, norm=layer.mlp_norm, activation=self.config.activation)
            x = k.linear(gated, layer.down, add=x)
        return k.linear(x[wanted], self.head, norm=self.norm)

    def first_layers(self, count: int) -> Decoder:
        """The same weights cut off after `count` layers: a draft that costs no memory."""
        return Decoder(self.config, self.kernels, self.embed, self.layers[:count], self.norm, self.head, self.device)

    def new_cache(self, pages: int) -> PagedCache:
        c = self.config
        return PagedCache(len(self.layers), c.kv_heads, c.head_size, pages, self.device)

    @property
    def nbytes(self) -> int:
        """Bytes of packed weights, a tied head counted once."""
        parts = {id(self.embed): self.embed, id(self.head): self.head}
        for layer in self.layers:
            parts |= {id(p): p for p in (layer.qkv, layer.out, layer.gate_up, layer.down)}
        return sum(p.nbytes for p in parts.values())


def build_decoder(
    config: ModelConfig,
    tensors: dict[str, Stored],
    kernels: Kernels[Any],
    device: torch.device | str = "cpu",
    weights: str = "auto",
) -> Decoder:
    """Packs `tensors` (canonical names, see weights/names.py) for `kernels`, emptying the dict as it goes.

    weights: the format that matrices are kept in (`formats.KINDS`); norms stay float32.
    """
    device = torch.device(device)
    cos, sin = (table.to(device) for table in rotary_tables(config))
    heads = Heads(config.heads, config.kv_heads, config.head_size, config.head_size**-0.5, cos, sin)

    def norm(name: str) -> Norm:
        return Norm(dequantise(tensors.pop(name)).to(device), config.norm_eps)

    def matrix(name: str, sensitive: bool = False) -> Stored:
        return convert(tensors.pop(name), weights, sensitive)

    def layer(i: int) -> Layer:
        at = f"layers.{i}."
        return Layer(
            attn_norm=norm(at + "attn_norm"),
            qkv=kernels.pack(concatenate(_alike(*(matrix(at + name) for name in ("q", "k", "v"))))),
            out=kernels.pack(matrix(at + "o")),
            mlp_norm=norm(at + "mlp_norm"),
            gate_up=kernels.pack_gated(*_alike(matrix(at + "gate"), matrix(at + "up"))),
            down=kernels.pack(matrix(at + "down")),
            heads=heads,
        )

    embed = kernels.pack(matrix("embed", sensitive=True))
    layers = tuple(layer(i) for i in range(config.layers))
    head = embed if config.tied else kernels.pack(matrix("head", sensitive=True))
    return Decoder(config, kernels, embed, layers, norm("norm"), head, device)


def _alike(*parts: Stored) -> list[Stored]:
    """Matrices that share a product: as they are where they have one format, else all in float32."""
    if len({part.format for part in parts}) == 1:
        return list(parts)
    return [store(dequantise(part)) for part in parts]


def rotary_tables(config: ModelConfig) -> tuple[Tensor, Tensor]:
    """cos and sin, float32 [context, head_size / 2], of position * theta^(-2 i / head_size), computed in float64."""
    half = torch.arange(config.head_size // 2, dtype=torch.float64)
    frequencies = config.rope_theta ** (-2.0 * half / config.head_size)
    angles = torch.arange(config.context, dtype=torch.float64)[:, None] * frequencies[None, :]
    return angles.cos().float(), angles.sin().float()
