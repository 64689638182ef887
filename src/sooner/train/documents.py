"""What a draft is trained on: the target's answers, its hidden states, and its distribution after every token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LABELS = 64  # likeliest tokens that are kept of the target's distribution


@dataclass(frozen=True, slots=True)
class Document:
    """A prompt with the target's answer.

    tokens [n]: prompt and answer. states [n - 1, taps, H] float16: of every token but the last, which the target never
    read. ids, logprobs [n - prompt, LABELS]: the target's likeliest tokens after token prompt - 1, prompt, ..., n - 2.
    """

    tokens: NDArray[np.uint32]
    prompt: int
    greedy: bool
    states: NDArray[np.float16]
    ids: NDArray[np.uint32]
    logprobs: NDArray[np.float16]

    @property
    def answer(self) -> int:
        return len(self.tokens) - self.prompt


@dataclass(frozen=True, slots=True)
class Labels:
    """The target's distribution over the draft's vocabulary in a batch's rows: ids and probabilities [R, LABELS].

    A probability is 0 where the draft lacks the token. best [R]: the target's first choice, as a draft id or -1.
    known [R]: whether the row has a label at all; a document's last rows have none at later steps.
    """

    ids: Tensor
    probabilities: Tensor
    best: Tensor
    known: Tensor


class Batch:
    """Documents side by side. Row i of a document pairs the hidden state of token i with token i + 1.

    All rows (0 .. n - 3) have keys; those from prompt - 1 on are *drafting*: what follows token i + 1 is guessed there.
    """

    def __init__(self, documents: Sequence[Document], to_draft: Tensor, temperature: float) -> None:
        self.documents = [document for document in documents if document.answer > 1]
        self.rows = [len(document.tokens) - 2 for document in self.documents]
        self.drafting = [document.answer - 1 for document in self.documents]
        self._to_draft, self._temperature = to_draft, temperature

    def states(self) -> Tensor:
        """Of all rows: float32 [rows, taps * H]."""
        parts = [document.states[:rows].reshape(rows, -1) for document, rows in zip(self.documents, self.rows)]
        return torch.from_numpy(np.concatenate(parts).astype(np.float32))

    def next_states(self) -> Tensor:
        """Of all rows, the last tap one token later: float32 [rows, H]."""
        parts = [document.states[1 : rows + 1, -1] for document, rows in zip(self.documents, self.rows)]
        return torch.from_numpy(np.concatenate(parts).astype(np.float32))

    def positions(self) -> Tensor:
        """Of all rows, in their documents."""
        return torch.cat([torch.arange(rows) for rows in self.rows])

    def chosen(self) -> Tensor:
        """Which of all rows are drafting."""
        ends = np.cumsum(self.rows)
        return torch.cat([torch.arange(end - count, end) for end, count in zip(ends, self.drafting)])

    def paired(self) -> Tensor:
        """The token beside the hidden state, of all rows."""
        parts = [document.tokens[1 : rows + 1] for document, rows in zip(self.documents, self.rows)]
        return torch.from_numpy(np.concatenate(parts).astype(np.int64))

    def drafted(self, step: int) -> Tensor:
        """The token that drafting row i reads at `step` (0 is the first): i + 1 + step, or the document's last."""
        parts = [
            document.tokens[
                np.minimum(np.arange(document.prompt, len(document.tokens) - 1) + step, len(document.tokens) - 1)
            ]
            for document in self.documents
        ]
        return torch.from_numpy(np.concatenate(parts).astype(np.int64))

    def labels(self, step: int) -> Labels:
        """What the target says after the token that drafting row i reads at `step`."""
        places = [np.arange(1, document.answer) + step for document in self.documents]
        known = [place < document.answer for place, document in zip(places, self.documents)]
        held = [np.minimum(place, document.answer - 1) for place, document in zip(places, self.documents)]
        ids = np.concatenate([document.ids[place] for document, place in zip(self.documents, held)])
        logprobs = np.concatenate([document.logprobs[place] for document, place in zip(self.documents, held)])
        draft = self._to_draft[torch.from_numpy(ids.astype(np.int64))]
        weights = (torch.from_numpy(logprobs.astype(np.float32)) / self._temperature).softmax(1) * (draft >= 0)
        total = weights.sum(1, keepdim=True)
        keep = torch.from_numpy(np.concatenate(known)) & (total[:, 0] > 0.05)
        return Labels(draft.clamp(min=0), weights / total.clamp(min=1e-6), draft[:, 0], keep)
