"""Medusa heads (Cai et al. 2024): head j says the token j + 2 places after a state from that state alone.

They look at the target's last state after the final norm. The token next to it is committed already, so the heads, in
their order, say what follows the ledger. None knows what the others say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sooner.draft.growth import Drawing
from sooner.draft.protocol import Ask
from sooner.errors import DrafterError, ModelError
from sooner.kernels.interface import Packed
from sooner.models.build import Builder
from sooner.models.decoder import Decoder
from sooner.models.runner import F32
from sooner.models.settings import Settings, require
from sooner.types import Draft, Ledger
from sooner.weights.files import read_json
from sooner.weights.names import MEDUSA_NAMES, rename
from sooner.weights.safetensors import SINGLE, read_folder

FILE = "medusa_lm_head.safetensors"  # where there is no model.safetensors


@dataclass(frozen=True, slots=True)
class MedusaHead:
    """Blocks x + SiLU(W x + b), then a head over the vocabulary."""

    blocks: tuple[Packed, ...]
    out: Packed


class MedusaDrafter:
    """Implements `protocol.Drafter` and `protocol.Features`: of each sequence the last state is kept."""

    samples = True
    trees = True
    token_bytes = 0

    def __init__(self, name: str, heads: Sequence[MedusaHead], target: Decoder) -> None:
        self.name, self.taps = name, (len(target.layers),)
        self.weight_bytes = sum(matrix.nbytes for head in heads for matrix in (*head.blocks, head.out))
        self._heads, self._target = heads, target
        self._states: dict[int, tuple[int, Tensor]] = {}  # how many positions were seen, and the last [1, W]

    def adopt(self, key: int, tokens: Sequence[int]) -> int:  # noqa: ARG002
        return len(tokens) - 1

    def observe(self, key: int, tokens: Sequence[int], start: int, features: Tensor) -> None:  # noqa: ARG002
        if len(features):
            self._states[key] = start + len(features), features[-1:, 0]

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """A head is asked for all sequences at once, when the first of them grows that far."""
        works = [Drawing(ask, ask.limit) for ask in asks]
        states = torch.cat([self._state_of(ask) for ask in asks])
        logits = [self._logits(self._heads[0], states)]
        for i, work in enumerate(works):
            while work.growth.next():
                depth = len(work.growth.path())
                if depth == len(logits) < len(self._heads):
                    logits.append(self._logits(self._heads[depth], states))
                if depth < len(self._heads):
                    work.extend(logits[depth][i], self._target.kernels.choose)
        return [work.growth.draft for work in works]

    @torch.inference_mode()
    def _logits(self, head: MedusaHead, states: Tensor) -> F32:
        """states [n, W] before the target's final norm -> [n, V]."""
        k = self._target.kernels
        with k.undisturbed():
            x = k.rmsnorm(states, self._target.norm)
            for block in head.blocks:
                x = x + F.silu(k.linear(x, block))
            return np.asarray(k.linear(x, head.out).cpu().numpy())

    def commit(self, key: int, ledger: Ledger) -> None:
        """Nothing to cut back."""

    def cached(self, key: int) -> int:
        return self._states[key][0] if key in self._states else 0

    def forget(self, key: int) -> None:
        self._states.pop(key, None)

    def _state_of(self, ask: Ask) -> Tensor:
        seen, state = self._states.get(ask.key, (0, torch.empty(0)))
        if seen != len(ask.ledger) - 1:
            raise DrafterError(f"drafter {self.name!r} saw {seen} positions of a ledger of {len(ask.ledger)} tokens")
        return state


def read_medusa(folder: Path, target: Decoder, weights: str) -> list[MedusaHead]:
    """All heads of a folder. Raises ModelError."""
    single = SINGLE if (folder / SINGLE).is_file() or not (folder / FILE).is_file() else FILE
    tensors = {name.removeprefix("medusa_head."): stored for name, stored in read_folder(folder, single).items()}
    heads = next(n for n in count() if not any(name.startswith(f"{n}.") for name in tensors))
    blocks = next(n for n in count() if f"0.{n}.linear.weight" not in tensors)
    settings = Settings(read_json(folder / "config.json") if (folder / "config.json").is_file() else {})
    for name, found in (("medusa_num_heads", heads), ("medusa_num_layers", blocks)):
        said = settings.whole(name, found)
        require(said == found, f"{name} is {said}, the file has {found}")
    if not heads:
        raise ModelError(f"{single} has no Medusa head (0.0.linear.weight); give a folder that has")
    width, vocabulary = target.config.hidden, target.config.vocabulary
    shapes: dict[str, tuple[int, ...]] = {f"heads.{h}.out.{blocks}": (vocabulary, width) for h in range(heads)}
    for name in (f"heads.{h}.blocks.{b}" for h in range(heads) for b in range(blocks)):
        shapes |= {name: (width, width), f"{name}_bias": (width,)}
    builder = Builder(target.config, rename(tensors, MEDUSA_NAMES, shapes), target.kernels, target.device, weights)
    return [
        MedusaHead(
            tuple(builder.pack(f"heads.{h}.blocks.{b}") for b in range(blocks)),
            builder.pack(f"heads.{h}.out.{blocks}", sensitive=True),
        )
        for h in range(heads)
    ]
