"""From a checkpoint's tensors to a decoder: each matrix is converted, packed for the kernels and let go, one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from sooner.errors import InputError
from sooner.kernels.formats import DTYPES, Stored, concatenate, convert, dequantise, exactly, store
from sooner.kernels.interface import Heads, Kernels, Norm, Packed
from sooner.models.config import ModelConfig
from sooner.models.decoder import Decoder, Layer, Projection
from sooner.models.feed import Dense, Mixture
from sooner.models.rope import Rope
from sooner.weights.finite import check_finite

Progress = Callable[[int, int], None]  # bytes of the file's weights that are packed, of how many


def build_decoder(
    config: ModelConfig,
    tensors: dict[str, Stored],
    kernels: Kernels[Any],
    device: torch.device | str = "cpu",
    weights: str = "auto",
    progress: Progress | None = None,
) -> Decoder:
    """Packs `tensors` (canonical names, see weights/names.py) for `kernels`, emptying the dict as it goes.

    weights: the format that matrices are kept in (`formats.KINDS`); norms and biases stay float32, and routers as they
    are. progress is called before each tensor is packed. Raises ModelError where a weight is no finite number.
    """
    return Builder(config, tensors, kernels, torch.device(device), weights, progress).decoder()


def check_grouped(tensors: Mapping[str, Stored], weights: str) -> None:
    """Raises InputError where no product of the layers would have weights of 4 or 8 bits, so that int8 activations
    would change nothing. Routers, and an embedding or a head of more bits, keep float32."""
    kinds = {t.format for name, t in tensors.items() if name.startswith("layers.") and len(t.shape) == 2}
    if weights == "auto" and kinds <= DTYPES.keys():
        found = ", ".join(sorted(kinds))
        raise InputError(f"activations int8 are for weights of 4 or 8 bits, these are {found}; use weights q8 or q4")


class Builder:
    """Takes tensors by our names, checks and packs them: a whole decoder, or parts for what else is made of them."""

    def __init__(
        self,
        config: ModelConfig,
        tensors: dict[str, Stored],
        kernels: Kernels[Any],
        device: torch.device,
        weights: str,
        progress: Progress | None = None,
    ) -> None:
        self._config = config
        self._tensors = tensors
        self._kernels = kernels
        self._device = device
        self._weights = weights
        self._progress = progress
        self._total = sum(stored.nbytes for stored in tensors.values())
        self._done = 0
        self._ropes: dict[Rope | None, tuple[Tensor | None, Tensor | None]] = {None: (None, None)}

    def decoder(self) -> Decoder:
        embed = self.pack("embed", sensitive=True)
        layers = tuple(self.layer(i) for i in range(self._config.layers))
        head = embed if self._config.tied else self.pack("head", sensitive=True)
        return Decoder(self._config, self._kernels, embed, layers, self.norm("norm"), head, self._device)

    def _take(self, name: str) -> Stored:
        stored = self._tensors.pop(name)
        self._done += stored.nbytes
        if self._progress is not None:
            self._progress(self._done, self._total)
        check_finite(name, stored)  # here, so that a file is read once, a tensor while it is in the processor's cache
        return stored

    def _vector(self, name: str) -> Tensor:
        return dequantise(self._take(name)).to(self._device)

    def norm(self, name: str) -> Norm:
        return Norm(self._vector(name), self._config.norm_eps)

    def _matrix(self, name: str, sensitive: bool = False) -> Stored:
        return exactly(convert(self._take(name), self._weights, sensitive), self._kernels.formats)

    def pack(self, name: str, sensitive: bool = False) -> Packed:
        bias = self._vector(f"{name}_bias") if f"{name}_bias" in self._tensors else None
        packed: Packed = self._kernels.pack(self._matrix(name, sensitive), bias)
        return packed

    def layer(self, i: int) -> Layer:
        at = f"layers.{i}."
        norms = {
            name: self.norm(at + name) if name in self._config.norms else None
            for name in ("attn_norm", "attn_post_norm", "mlp_norm", "mlp_post_norm")
        }
        qkv, heads = self.projections(at), self.heads(i)
        return Layer(qkv=qkv, heads=heads, out=self.pack(at + "o"), mlp=self._feed(at), **norms)

    def projections(self, at: str) -> tuple[Projection, ...]:
        """Query, key and value in one product where their formats agree; apart where each is normed as a whole."""
        if self._config.qk_norm == "width":
            norms = (self.norm(at + "q_norm"), self.norm(at + "k_norm"), None)
            return tuple(Projection(self.pack(at + name), norm) for name, norm in zip("qkv", norms))
        parts = [(name, self._matrix(at + name)) for name in "qkv"]
        groups = [list(group) for _, group in groupby(parts, lambda part: part[1].format)]
        return tuple(Projection(self._joined(at, group)) for group in groups)

    def _joined(self, at: str, parts: Sequence[tuple[str, Stored]]) -> Packed:
        bias = None
        if any(name in self._config.biases for name, _ in parts):
            bias = torch.cat([self._bias(f"{at}{name}_bias", matrix.shape[0]) for name, matrix in parts])
        packed: Packed = self._kernels.pack(concatenate([matrix for _, matrix in parts]), bias)
        return packed

    def _bias(self, name: str, outputs: int) -> Tensor:
        return self._vector(name) if name in self._tensors else torch.zeros(outputs, device=self._device)

    def heads(self, i: int) -> Heads:
        c = self._config
        rope, window = c.attention[i].rope, c.attention[i].window
        if rope is not None and rope not in self._ropes:
            cos, sin = rope.tables(c.context)
            self._ropes[rope] = cos.to(self._device), sin.to(self._device)
        norms = [self.norm(f"layers.{i}.{x}_norm") if c.qk_norm == "head" else None for x in "qk"]
        scale = c.head_size**-0.5 if c.attention_scale is None else c.attention_scale
        return Heads(c.heads, c.kv_heads, c.head_size, scale, *self._ropes[rope], window, c.attention_softcap, *norms)

    def _feed(self, at: str) -> Dense | Mixture:
        experts = self._config.experts
        if experts is None:
            return self.dense(at)
        dense = tuple(self.dense(f"{at}experts.{e}.") for e in range(experts.count))
        router = self._kernels.pack(exactly(self._take(at + "router"), self._kernels.formats))
        return Mixture(router, dense, experts.used, experts.renormalise)

    def dense(self, at: str) -> Dense:
        gate, up = _alike(self._matrix(at + "gate"), self._matrix(at + "up"))
        return Dense(self._kernels.pack_gated(gate, up), self.pack(at + "down"))


def _alike(*parts: Stored) -> list[Stored]:
    """Matrices that share a product: as they are where they have one format, else all in float32."""
    if len({part.format for part in parts}) == 1:
        return list(parts)
    return [store(dequantise(part)) for part in parts]
