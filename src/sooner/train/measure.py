"""How often a draft would be accepted, by position, measured on held-out answers without the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sooner.train.documents import Document, Labels


@dataclass(slots=True)
class Measured:
    """By position in the draft: chains that came so far, chains accepted there, and the summed loss.

    greedy: answers at temperature 0, where a draft is its most likely tokens and is accepted or not. overlap: summed
    min(p, q) of sampled answers, the chance that a token is accepted, after positions that were all the answer's own.
    """

    tried: list[int]
    accepted: list[int]
    loss: list[float]
    rows: list[int]
    chains: int = 0
    overlap: float = 0.0
    sampled: int = 0

    @classmethod
    def over(cls, steps: int) -> Measured:
        return cls([0] * steps, [0] * steps, [0.0] * steps, [0] * steps)

    def add(self, documents: Sequence[Document], logits: Sequence[Tensor], labels: Sequence[Labels]) -> None:
        """Documents' drafting rows side by side, at each step."""
        greedy = np.repeat([d.greedy for d in documents], [d.answer - 1 for d in documents])
        alive = torch.from_numpy(greedy) & complete(documents, len(logits))
        self.chains += int(alive.sum())
        for step, (guess, label) in enumerate(zip(logits, labels)):
            self.loss[step] += float((cross_entropy(guess, label) * label.known).sum())
            self.rows[step] += int(label.known.sum())
            self.tried[step] += int(alive.sum())
            alive = alive & (guess.argmax(1) == label.best)
            self.accepted[step] += int(alive.sum())
        chosen = ~torch.from_numpy(greedy) & labels[0].known
        q = logits[0].softmax(1).gather(1, labels[0].ids)
        self.overlap += float(torch.minimum(q, labels[0].probabilities)[chosen].sum())
        self.sampled += int(chosen.sum())

    def summary(self) -> dict[str, Any]:
        """acceptance: of each position, given the ones before. tokens_a_round: with all positions drafted, T = 0."""
        return {
            "acceptance": [round(a / max(t, 1), 4) for a, t in zip(self.accepted, self.tried)],
            "tokens_a_round": round(1 + sum(self.accepted) / max(self.chains, 1), 4),
            "overlap": round(self.overlap / max(self.sampled, 1), 4),
            "loss": [round(loss / max(rows, 1), 4) for loss, rows in zip(self.loss, self.rows)],
        }


def cross_entropy(logits: Tensor, labels: Labels) -> Tensor:
    """Of each row against the target's distribution over the draft's vocabulary: [R]."""
    return logits.logsumexp(1) - (labels.probabilities * logits.gather(1, labels.ids)).sum(1)


def complete(documents: Sequence[Document], steps: int) -> Tensor:
    """Drafting rows after which the answer goes on for `steps` tokens."""
    return torch.from_numpy(np.concatenate([np.arange(d.answer - 1) < d.answer - steps for d in documents]))
