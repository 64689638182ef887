"""MTP modules: a layer that was trained with the target to say the token after the next.

The module reads the target's last state after the final norm and the embedding of the next token, each normed; its own
normed output takes the state's place for further tokens. Embedding and head are the target's. In MiMo's layout
(MiMo-7B, Xiaomi 2025, after DeepSeek-V3, 2024) the state comes first, in Qwen3.5's (Qwen 2026) the embedding.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from sooner.draft.eagle import OnTarget
from sooner.errors import ModelError
from sooner.kernels.formats import Stored
from sooner.kernels.interface import LayerCache, Norm, Packed, Rows
from sooner.models.build import Builder
from sooner.models.decoder import Decoder, only
from sooner.weights.names import MIMO_MTP_NAMES, QWEN_MTP_NAMES, NameMap, rename
from sooner.weights.safetensors import read_folder

LAYOUTS = (MIMO_MTP_NAMES, QWEN_MTP_NAMES)


@dataclass(frozen=True, slots=True)
class Mtp(OnTarget):
    """Implements `heads.Head`."""

    token_norm: Norm
    hidden_norm: Norm
    norm: Norm
    embedding_first: bool

    @property
    def matrices(self) -> list[Packed]:
        return [self.target.embed, self.project, *self.layer.matrices, self.target.head]

    def forward(self, hidden: Tensor, rows: Rows, cache: LayerCache, wanted: Tensor) -> tuple[Tensor, Tensor]:
        k = self.kernels
        state = k.rmsnorm(hidden, self.hidden_norm)
        embedded = k.rmsnorm(k.embed(self.target.embed, rows.tokens), self.token_norm)
        both = (embedded, state) if self.embedding_first else (state, embedded)
        x = k.linear(torch.cat(both, dim=1), self.project)
        x = only(self.layer.apply(k, x, x, cache, rows, self.target.config.activation), wanted)
        x = k.rmsnorm(x, self.norm)
        return self.spoken(x), x


def read_mtp(folder: Path, target: Decoder, weights: str) -> Mtp:
    """The module in a checkpoint's folder, whose layer is like the target's last one. Raises ModelError."""
    tensors, names = _module(folder)
    config = replace(target.config, attention=target.config.attention[-1:])
    layer = {name: shape for name, shape in config.shapes().items() if name.startswith("layers.0.")}
    vectors = dict.fromkeys((f"layers.0.{name}_norm" for name in ("token", "hidden", "final")), (config.hidden,))
    shapes = layer | vectors | {"layers.0.project": (config.hidden, 2 * config.hidden)}
    builder = Builder(config, rename(tensors, names, shapes), target.kernels, target.device, weights)
    return Mtp(
        target,
        builder.pack("layers.0.project"),
        builder.layer(0),
        builder.norm("layers.0.token_norm"),
        builder.norm("layers.0.hidden_norm"),
        builder.norm("layers.0.final_norm"),
        embedding_first=names is QWEN_MTP_NAMES,
    )


def _module(folder: Path) -> tuple[dict[str, Stored], NameMap]:
    """Its tensors, and the layout that they are named in."""
    files = read_folder(folder)
    for names in LAYOUTS:
        if tensors := {name: stored for name, stored in files.items() if names.knows(name)}:
            return tensors, names
    raise ModelError(
        "the folder has no MTP module (model.mtp_layers.0 or mtp.layers.0); give mtp:PATH, or another drafter"
    )
