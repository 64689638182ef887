"""EAGLE heads: one layer on the target's own hidden states, in the published formats.

EAGLE-3 (Li et al. 2025) fuses the states at three layers, and its layer reads the normed embedding beside the normed
fused state. EAGLE-1 (Li et al. 2024) joins the embedding and the last state, and borrows the target's head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sooner.cache.paged import PagedCache
from sooner.kernels.interface import Activation, Kernels, LayerCache, Norm, Packed, Rows
from sooner.models.decoder import Decoder, Layer, capped, only


@dataclass(frozen=True, slots=True)
class Eagle3:
    """Implements `heads.Head`. norm_before_residual: the layer adds to the normed fused state, not to the state itself.

    Later steps are fed the layer's output before the final norm.
    """

    taps: tuple[int, ...]
    targets: NDArray[np.int64] | None
    kernels: Kernels[Any]
    embed: Packed
    fc: Packed
    input_norm: Norm
    hidden_norm: Norm
    layer: Layer
    norm: Norm
    head: Packed
    activation: Activation
    device: torch.device
    norm_before_residual: bool = False

    @property
    def matrices(self) -> list[Packed]:
        return [self.embed, self.fc, *self.layer.matrices, self.head]

    def new_cache(self, pages: int) -> PagedCache:
        return one_layer_cache(self.layer, pages, self.device)

    def fuse(self, features: Tensor) -> Tensor:
        return self.kernels.linear(features.flatten(1), self.fc)

    def forward(self, hidden: Tensor, rows: Rows, cache: LayerCache, wanted: Tensor) -> tuple[Tensor, Tensor]:
        k = self.kernels
        embedded = k.rmsnorm(k.embed(self.embed, rows.tokens), self.input_norm)
        normed = k.rmsnorm(hidden, self.hidden_norm)
        skip = normed if self.norm_before_residual else hidden
        both = torch.cat([embedded, normed], dim=1)
        x = only(self.layer.apply(k, both, skip, cache, rows, self.activation), wanted)
        return k.linear(x, self.head, norm=self.norm), x


@dataclass(frozen=True, slots=True)
class OnTarget:
    """What heads share that are fed the target's last state after its final norm, and speak through the target's head.

    project: from a token's embedding beside such a state to the layer's width.
    """

    target: Decoder
    project: Packed
    layer: Layer

    @property
    def taps(self) -> tuple[int, ...]:
        return (len(self.target.layers),)

    @property
    def targets(self) -> None:
        return None

    @property
    def kernels(self) -> Kernels[Any]:
        return self.target.kernels

    def new_cache(self, pages: int) -> PagedCache:
        return one_layer_cache(self.layer, pages, self.target.device)

    def fuse(self, features: Tensor) -> Tensor:
        return self.kernels.rmsnorm(features.flatten(1), self.target.norm)

    def spoken(self, states: Tensor) -> Tensor:
        return capped(self.kernels.linear(states, self.target.head), self.target.config.logit_softcap)


@dataclass(frozen=True, slots=True)
class Eagle1(OnTarget):
    """Implements `heads.Head`. Later steps are fed the layer's output, which the target's head reads as it is."""

    embed: Packed
    activation: Activation

    @property
    def matrices(self) -> list[Packed]:
        return [self.embed, self.project, *self.layer.matrices, self.target.head]

    def forward(self, hidden: Tensor, rows: Rows, cache: LayerCache, wanted: Tensor) -> tuple[Tensor, Tensor]:
        k = self.kernels
        x = k.linear(torch.cat([k.embed(self.embed, rows.tokens), hidden], dim=1), self.project)
        x = only(self.layer.apply(k, x, x, cache, rows, self.activation), wanted)
        return self.spoken(x), x


def one_layer_cache(layer: Layer, pages: int, device: torch.device) -> PagedCache:
    return PagedCache(1, layer.heads.kv, layer.heads.size, pages, device)
