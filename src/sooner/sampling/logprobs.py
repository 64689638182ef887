"""Log-probabilities for people: the target's own softmax, before any sampling option changes it."""

from __future__ import annotations

import numpy as np

from sooner.sampling.road import F32
from sooner.types import Logprob


def logprob(row: F32, token: int, top: int) -> Logprob:
    """row: logits [V]. The `top` likeliest come best first, equal ones by lowest id. Computed in float64."""
    shifted = row.astype(np.float64) - float(row.max())
    logs = shifted - np.log(np.exp(shifted).sum())
    candidates = np.flatnonzero(row >= np.partition(row, -top)[-top]) if top else np.zeros(0, np.int64)
    best = candidates[np.argsort(-row[candidates], kind="stable")][:top]
    return Logprob(token, float(logs[token]), tuple((int(t), float(logs[t])) for t in best))
