"""An EAGLE-3 head (Li et al. 2025, arXiv 2503.01840) for training. Its parameters bear the published names.

A row joins the target's hidden state at a token, fused from three layers, with the token that follows it, and guesses
the one after that. Later steps are fed the head's own outputs, as when it drafts ("training-time test").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sooner.train.documents import Batch, Document
from sooner.train.measure import Measured, cross_entropy
from sooner.train.parts import Linear, Mlp, rotate

ROPE_THETA = 100000.0  # of the head's own layer, whatever the target's


@dataclass(frozen=True, slots=True)
class EagleShape:
    """hidden is the target's too; taps are numbered by the layer whose input they are, `layers` being the output."""

    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    mlp: int
    vocabulary: int
    draft_vocabulary: int
    taps: tuple[int, ...]
    norm_eps: float
    context: int


class Attention(nn.Module):
    """Over a row's document up to the row itself, and over the row's own earlier steps."""

    cos: Tensor
    sin: Tensor

    def __init__(self, shape: EagleShape) -> None:
        super().__init__()
        self._heads, self._kv_heads, self._size = shape.heads, shape.kv_heads, shape.head_size
        query, kv = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
        self.q_proj = Linear(2 * shape.hidden, query)
        self.k_proj = Linear(2 * shape.hidden, kv)
        self.v_proj = Linear(2 * shape.hidden, kv)
        self.o_proj = Linear(query, shape.hidden)
        powers = torch.arange(0, shape.head_size, 2, dtype=torch.float64) / shape.head_size
        angles = torch.arange(shape.context, dtype=torch.float64)[:, None] * ROPE_THETA**-powers
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)

    def queries(self, x: Tensor, positions: Tensor) -> Tensor:
        """[R, 2H] -> [heads, R, size]."""
        return self._rotate(self.q_proj(x).view(len(x), self._heads, -1).transpose(0, 1), positions)

    def pairs(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values, each [heads, R, size]."""
        k, v = (p(x).view(len(x), self._kv_heads, -1).transpose(0, 1) for p in (self.k_proj, self.v_proj))
        each = self._heads // self._kv_heads
        return self._rotate(k, positions).repeat_interleave(each, 0), v.repeat_interleave(each, 0)

    def _rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        return rotate(x, self.cos[positions], self.sin[positions])

    def mix(self, q: Tensor, k: Tensor, v: Tensor, own: list[tuple[Tensor, Tensor]]) -> Tensor:
        """One document: q [heads, A, size] of its last A rows, k and v of all its rows, own: of A rows, each step."""
        rows, keys = q.shape[1], k.shape[1]
        scale = self._size**-0.5
        later = torch.ones(rows, keys, dtype=torch.bool).triu(keys - rows + 1)
        scores = ((q * scale) @ k.transpose(1, 2)).masked_fill(later, -torch.inf)
        mine = [((q * scale) * key).sum(2, keepdim=True) for key, _ in own]
        weights = torch.cat([scores, *mine], dim=2).softmax(2)
        mixed = weights[:, :, :keys] @ v
        for at, (_, value) in enumerate(own):
            mixed = mixed + weights[:, :, keys + at : keys + at + 1] * value
        return mixed.transpose(0, 1).flatten(1)


class Midlayer(nn.Module):
    """The one decoder layer. Its residual is the hidden state after hidden_norm ("norm before residual")."""

    def __init__(self, shape: EagleShape) -> None:
        super().__init__()
        self.hidden_norm = nn.RMSNorm(shape.hidden, shape.norm_eps)
        self.input_layernorm = nn.RMSNorm(shape.hidden, shape.norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden, shape.norm_eps)
        self.self_attn = Attention(shape)
        self.mlp = Mlp(shape.hidden, shape.mlp)

    def joined(self, hidden: Tensor, embedded: Tensor) -> tuple[Tensor, Tensor]:
        """The residual [R, H], and what attention reads [R, 2H]."""
        residual = self.hidden_norm(hidden)
        return residual, torch.cat([self.input_layernorm(embedded), residual], dim=1)

    def finish(self, residual: Tensor, mixed: Tensor) -> Tensor:
        x = residual + self.self_attn.o_proj(mixed)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class EagleHead(nn.Module):
    """embedding [V, H] is the target's and stays as it is; it is not saved with the head."""

    embedding: Tensor
    d2t: Tensor
    t2d: Tensor

    def __init__(self, shape: EagleShape, embedding: Tensor, draft_tokens: Tensor) -> None:
        """draft_tokens: the target ids of the draft's vocabulary, ascending."""
        super().__init__()
        self.shape = shape
        self.fc = Linear(len(shape.taps) * shape.hidden, shape.hidden)
        self.midlayer = Midlayer(shape)
        self.norm = nn.RMSNorm(shape.hidden, shape.norm_eps)
        self.lm_head = Linear(shape.hidden, shape.draft_vocabulary)
        self.lm_head.weight.requires_grad_(False)
        self.register_buffer("embedding", embedding, persistent=False)
        self.register_buffer("d2t", draft_tokens - torch.arange(len(draft_tokens)))
        known = torch.zeros(shape.vocabulary, dtype=torch.bool)
        known[draft_tokens] = True
        self.register_buffer("t2d", known)

    def steps(self, batch: Batch, count: int) -> list[Tensor]:
        """Logits [drafting rows, draft vocabulary] of each step."""
        attention, positions, chosen = self.midlayer.self_attn, batch.positions(), batch.chosen()
        hidden = self.fc(batch.states())
        residual, joined = self.midlayer.joined(hidden, F.embedding(batch.paired(), self.embedding))
        keys, values = (torch.split(pair, batch.rows, dim=1) for pair in attention.pairs(joined, positions))
        residual, joined, positions = residual[chosen], joined[chosen], positions[chosen]
        own: list[list[tuple[Tensor, Tensor]]] = [[] for _ in batch.rows]
        logits = []
        for step in range(count):
            if step:
                residual, joined = self.midlayer.joined(hidden, F.embedding(batch.drafted(step), self.embedding))
                news = [torch.split(pair, batch.drafting, dim=1) for pair in attention.pairs(joined, positions + step)]
                for mine, key, value in zip(own, *news):
                    mine.append((key, value))
            queries = torch.split(attention.queries(joined, positions + step), batch.drafting, dim=1)
            mixed = [attention.mix(*each) for each in zip(queries, keys, values, own)]
            hidden = self.midlayer.finish(residual, torch.cat(mixed))
            logits.append(self.lm_head(self.norm(hidden)))
        return logits


STEP_WEIGHTS = (1.0, 0.8, 0.64)  # of the losses: a later step matters only where the ones before were accepted
SHARPNESS = 0.5  # temperature of the labels: between what the target samples from at 1 and its choice at 0
MEASURED_STEPS = 3
MEASURED_AT = 0.8  # temperature at which overlap is measured
TOGETHER = 4  # documents of one measured batch


class EagleStudent:
    """Implements `loop.Student`. steps: of training-time test."""

    def __init__(self, head: EagleHead, rates: dict[str, float], steps: int) -> None:
        self.module, self._rates, self._steps = head, rates, steps
        self._to_draft = torch.full((head.shape.vocabulary,), -1)
        self._to_draft[head.t2d] = torch.arange(head.shape.draft_vocabulary)

    def groups(self) -> list[dict[str, Any]]:
        parameters = dict(self.module.named_parameters())
        return [{"params": [parameters[name]], "scale": scale} for name, scale in self._rates.items()]

    def loss(self, documents: Sequence[Document]) -> Tensor:
        batch = Batch(documents, self._to_draft, SHARPNESS)
        total, weights = torch.zeros(()), STEP_WEIGHTS[: self._steps]
        for step, (weight, logits) in enumerate(zip(weights, self.module.steps(batch, self._steps))):
            labels = batch.labels(step)
            total = total + weight * (cross_entropy(logits, labels) * labels.known).sum() / labels.known.sum().clamp(1)
        return total / sum(weights)

    def measure(self, documents: Sequence[Document]) -> Measured:
        result = Measured.over(MEASURED_STEPS)
        for at in range(0, len(documents), TOGETHER):
            batch = Batch(documents[at : at + TOGETHER], self._to_draft, MEASURED_AT)
            labels = [batch.labels(step) for step in range(MEASURED_STEPS)]
            result.add(batch.documents, self.module.steps(batch, MEASURED_STEPS), labels)
        return result
