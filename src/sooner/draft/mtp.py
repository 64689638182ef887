"""MTP modules: a layer that was trained with the target to say the token after the next, in MiMo's layout.

The module reads the target's last state after the final norm and the embedding of the next token, each normed, the
state first; its own normed output takes the state's place for further tokens. Embedding and head are the target's.
Source: MiMo-7B (Xiaomi 2025), after DeepSeek-V3 (2024).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sooner.cache.paged import PagedCache
from sooner.draft.eagle import one_layer_cache
from sooner.errors import ModelError
from sooner.kernels.interface import Kernels, LayerCache, Norm, Packed, Rows
from sooner.models.build import Builder
from sooner.models.decoder import Decoder, Layer, capped
from sooner.weights.names import MTP_NAMES, rename
from sooner.weights.safetensors import read_folder


@dataclass(frozen=True, slots=True)
class Mtp:
    """Implements `heads.Head`."""

    taps: tuple[int, ...]
    target: Decoder
    token_norm: Norm
    hidden_norm: Norm
    project: Packed
    layer: Layer
    norm: Norm
    targets: NDArray[np.int64] | None = None

    @property
    def kernels(self) -> Kernels[Any]:
        return self.target.kernels

    @property
    def matrices(self) -> list[Packed]:
        return [self.target.embed, self.project, *self.layer.matrices, self.target.head]

    def new_cache(self, pages: int) -> PagedCache:
        return one_layer_cache(self.layer, pages, self.target.device)

    def fuse(self, features: Tensor) -> Tensor:
        return self.kernels.rmsnorm(features.flatten(1), self.target.norm)

    def forward(self, hidden: Tensor, rows: Rows, cache: LayerCache, wanted: Tensor) -> tuple[Tensor, Tensor]:
        k, target = self.kernels, self.target
        embedded = k.rmsnorm(k.embed(target.embed, rows.tokens), self.token_norm)
        x = k.linear(torch.cat([k.rmsnorm(hidden, self.hidden_norm), embedded], dim=1), self.project)
        x = self.layer.apply(k, x, x, cache, rows, target.config.activation)[wanted]
        x = k.rmsnorm(x, self.norm)
        return capped(k.linear(x, target.head), target.config.logit_softcap), x


def read_mtp(folder: Path, target: Decoder, weights: str) -> Mtp:
    """The module in a checkpoint's folder. Raises ModelError."""
    tensors = {name: stored for name, stored in read_folder(folder).items() if MTP_NAMES.knows(name)}
    if not tensors:
        raise ModelError("the folder has no MTP module (model.mtp_layers.0); give mtp:PATH, or another drafter")
    config = replace(target.config, attention=target.config.attention[-1:])
    layer = {name: shape for name, shape in config.shapes().items() if name.startswith("layers.0.")}
    vectors = dict.fromkeys((f"layers.0.{name}_norm" for name in ("token", "hidden", "final")), (config.hidden,))
    shapes = layer | vectors | {"layers.0.project": (config.hidden, 2 * config.hidden)}
    builder = Builder(config, rename(tensors, MTP_NAMES, shapes), target.kernels, target.device, weights)
    return Mtp(
        (len(target.layers),),
        target,
        builder.norm("layers.0.token_norm"),
        builder.norm("layers.0.hidden_norm"),
        builder.pack("layers.0.project"),
        builder.layer(0),
        builder.norm("layers.0.final_norm"),
    )
