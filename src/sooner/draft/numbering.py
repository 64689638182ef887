"""Whether a head's layers are counted as its file says: a glance at some text tells, before the first request.

A head that taps one layer beside those that it was trained on still drafts, only worse, and nothing else would show it.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sooner.cache.paged import Table, pages_for
from sooner.draft.eagle import Eagle3
from sooner.models.decoder import Decoder
from sooner.models.runner import F32, Span, layout, tapped
from sooner.types import Draft

TOKENS = 64
CLEARLY = 3.0  # standard deviations of a sign test
TEXT = (
    "The moon is the only natural satellite of the Earth. It is about a quarter as wide as our planet, and it takes "
    "roughly twenty-seven days to go around it once. Because it always turns the same face towards us, people on the "
    "ground never see its far side. Tides rise and fall with it."
)


def checked_numbering(name: str, target: Decoder, head: Eagle3, ids: Sequence[int]) -> Eagle3:
    """The head with taps that agree with the target on the tokens `ids`: its own, or those one layer beside, where they
    agree clearly better. That is told in a warning."""
    ids = list(ids[: min(TOKENS, target.config.context)])
    if len(ids) < 2:
        return head
    ways = [tuple(tap + shift for tap in head.taps) for shift in (0, -1, 1)]
    ways = [taps for taps in ways if taps[0] >= 0 and taps[-1] <= len(target.layers)]
    union = sorted({tap for taps in ways for tap in taps})
    logits, features = _read(target, ids, union)
    right = [
        _agreement(target, replace(head, taps=taps), ids, features[:, [union.index(tap) for tap in taps]], logits)
        for taps in ways
    ]
    best = max(range(len(ways)), key=lambda i: int(right[i].sum()))
    for_it, against = int((right[best] & ~right[0]).sum()), int((right[0] & ~right[best]).sum())
    if for_it - against <= CLEARLY * (for_it + against) ** 0.5:
        return head
    warnings.warn(
        f"drafter {name!r} taps layers {ways[0]} by its config.json and agrees with the target on "
        f"{right[0].sum()} of {len(ids) - 1} tokens; at {ways[best]} it agrees on {right[best].sum()}, so these are "
        "used: its file counts layers in another way, correct eagle_aux_hidden_state_layer_ids in it",
        RuntimeWarning,
        stacklevel=2,
    )
    return replace(head, taps=ways[best])


def _read(target: Decoder, ids: Sequence[int], taps: Sequence[int]) -> tuple[F32, Tensor]:
    """The target's logits [n, V] and features [n, taps, W] of a text."""
    span = Span(Table(), ids[:1], Draft.chain(ids[1:]))
    [logits], [features] = tapped(target, target.new_cache(pages_for(len(ids))), [span], taps)
    return logits, features


@torch.inference_mode()
def _agreement(target: Decoder, head: Eagle3, ids: Sequence[int], features: Tensor, logits: F32) -> NDArray[np.bool_]:
    """[n - 1]: whether the head's first guess after each token but the first is the target's choice."""
    cache, table = head.new_cache(pages_for(len(ids))), Table()
    cache.reserve(table, len(ids))
    rows, wanted = layout([Span(table, ids[1:], wants=len(ids) - 1)], target.device)
    drafted, _ = head.forward(head.fuse(features[:-1]), rows, cache.layers[0], wanted)
    guesses = drafted.argmax(1).cpu().numpy()
    return np.asarray((guesses if head.targets is None else head.targets[guesses]) == logits[1:].argmax(1))
