"""Medusa heads (Cai et al. 2024, arXiv 2401.10774) for training: each guesses one later token from one state."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from sooner.train.card import write_card
from sooner.train.documents import Batch, Document
from sooner.train.eagle import MEASURED_AT, SHARPNESS, TOGETHER
from sooner.train.measure import Measured, cross_entropy
from sooner.train.parts import product
from sooner.train.teach import Teacher, train


class Block(nn.Module):
    """x + SiLU(W x + b), which begins as x."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.silu(product(x, self.linear.weight) + self.linear.bias)


class MedusaHeads(nn.Module):
    """heads x blocks. Every head ends in the target's own output matrix, which stays as it is."""

    norm: Tensor
    output: Tensor

    def __init__(self, heads: int, blocks: int, norm: Tensor, eps: float, output: Tensor) -> None:
        super().__init__()
        width = len(norm)
        self.eps = eps
        self.count, self.blocks = heads, blocks
        self.heads = nn.ModuleList(nn.Sequential(*(Block(width) for _ in range(blocks))) for _ in range(heads))
        self.register_buffer("norm", norm, persistent=False)
        self.register_buffer("output", output, persistent=False)

    def steps(self, batch: Batch) -> list[Tensor]:
        """Logits [drafting rows, V] of each head."""
        states = F.rms_norm(batch.states()[batch.chosen()], list(self.norm.shape), self.norm, self.eps)
        return [product(head(states), self.output) for head in self.heads]


class MedusaStudent:
    """Implements `loop.Student`."""

    def __init__(self, heads: MedusaHeads) -> None:
        self.module = heads
        self._to_draft = torch.arange(len(heads.output))

    def groups(self) -> list[dict[str, Any]]:
        return [{"params": list(self.module.parameters()), "scale": 1.0 / len(self.module.norm)}]

    def loss(self, documents: Sequence[Document]) -> Tensor:
        batch = Batch(documents, self._to_draft, SHARPNESS)
        total = torch.zeros(())
        for step, logits in enumerate(self.module.steps(batch)):
            labels = batch.labels(step)
            total = total + (cross_entropy(logits, labels) * labels.known).sum() / labels.known.sum().clamp(1)
        return total / self.module.count

    def measure(self, documents: Sequence[Document]) -> Measured:
        result = Measured.over(self.module.count)
        for at in range(0, len(documents), TOGETHER):
            batch = Batch(documents[at : at + TOGETHER], self._to_draft, MEASURED_AT)
            logits = self.module.steps(batch)
            result.add(batch.documents, logits, [batch.labels(step) for step in range(len(logits))])
        return result


def export_medusa(heads: MedusaHeads, folder: Path) -> None:
    """The published names: `{head}.{block}.linear.weight` and `.bias`, and `{head}.{blocks}.weight`, in bf16."""
    tensors = {name.removeprefix("heads."): tensor for name, tensor in heads.state_dict().items()}
    count, blocks = heads.count, heads.blocks
    tensors |= {f"{head}.{blocks}.weight": heads.output.clone() for head in range(count)}
    kept = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in tensors.items()}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["MedusaModel"],
        "model_type": "medusa",
        "hidden_size": len(heads.norm),
        "vocab_size": len(heads.output),
        "num_heads": count,
        "medusa_num_heads": count,
        "num_hidden_layers": blocks,
        "medusa_num_layers": blocks,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def train_medusa(teacher: Teacher, heads: int, blocks: int) -> None:
    """Writes model.safetensors, config.json and README.md into the job's folder."""
    config = teacher.checkpoint.config
    answers = teacher.answers()
    store = teacher.store(answers, (config.layers,))
    module = MedusaHeads(heads, blocks, teacher.tensor("norm"), config.norm_eps, teacher.tensor("head"))
    trainer = train(MedusaStudent(module), store, teacher)
    export_medusa(module, teacher.job.out)
    write_card(teacher.job, "Medusa heads", trainer)
