"""`sooner train eagle`: an EAGLE-3 head for a dense target."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch

from sooner.errors import InputError
from sooner.models.config import ModelConfig
from sooner.train import start
from sooner.train.card import write_card
from sooner.train.documents import Batch
from sooner.train.eagle import SHARPNESS, TOGETHER, EagleHead, EagleShape, EagleStudent
from sooner.train.export import Format, Trained, export_eagle, put_weights, read_eagle
from sooner.train.parts import rates
from sooner.train.store import Store, split
from sooner.train.teach import Teacher, frequent, train

VOCABULARY = 8192  # tokens that a head drafts, unless it is told otherwise
FIRST = 160  # documents from which the first weights are solved


@dataclass(frozen=True, slots=True)
class EagleOptions:
    """start: the folder of a head that was trained before; its vocabulary and its taps stay."""

    vocabulary: int = VOCABULARY
    steps: int = 2
    taps: tuple[int, ...] | None = None
    layout: Format = "eagle3"
    start: Path | None = None


def train_eagle(teacher: Teacher, options: EagleOptions) -> None:
    """Writes model.safetensors, config.json and README.md into the job's folder."""
    config = teacher.checkpoint.config
    trained = read_eagle(options.start) if options.start else None
    taps = trained.taps if trained else options.taps or (2, config.layers // 2, config.layers - 1)
    check(config, taps)
    answers = teacher.answers()
    most = min(options.vocabulary, config.vocabulary)
    tokens = trained.tokens if trained else frequent(answers, most, config.vocabulary, sorted(config.eos))
    head = EagleHead(shape_of(config, taps, len(tokens)), teacher.tensor("embed"), tokens)
    store = teacher.store(answers, taps)
    student = first_student(teacher, head, store, tokens, options.steps, trained)
    trainer = train(student, store, teacher)
    export_eagle(head, teacher.job.out, options.layout, teacher.job.model)
    write_card(teacher.job, "EAGLE-3 head", trainer)


def check(config: ModelConfig, taps: tuple[int, ...]) -> None:
    if not all(a < b for a, b in pairwise((-1, *taps, config.layers + 1))):
        raise InputError(f"taps {taps} must ascend from 0 to at most the target's {config.layers} layers; see --taps")
    if config.experts is not None or config.activation != "silu" or config.norms != ("attn_norm", "mlp_norm"):
        raise InputError(
            f"train eagle starts from a dense layer as Llama has it, {config.architecture} differs; train a draft"
        )


def shape_of(config: ModelConfig, taps: tuple[int, ...], vocabulary: int) -> EagleShape:
    """Each head has keys and values of its own: most of them look at their own row, with their own part of a map."""
    c = config
    return EagleShape(
        c.hidden, c.heads, c.heads, c.head_size, c.mlp, c.vocabulary, vocabulary, taps, c.norm_eps, c.context
    )


def first_student(
    teacher: Teacher, head: EagleHead, store: Store, tokens: torch.Tensor, steps: int, trained: Trained | None
) -> EagleStudent:
    """With weights that were trained before, or solved from the first documents. A resumed training overwrites them."""
    to_draft = torch.full((head.shape.vocabulary,), -1)
    to_draft[tokens] = torch.arange(len(tokens))
    places = split(len(store.answers))[0][: TOGETHER if trained else FIRST]
    how = "sizing the rates" if trained else "solving the first weights"
    teacher.reports.line(f"{how}, from {len(places)} answers")
    groups = [places[at : at + TOGETHER] for at in range(0, len(places), TOGETHER)]
    batches = [Batch(store.documents(group), to_draft, SHARPNESS) for group in groups]
    if trained:
        put_weights(head, trained)
    else:
        last = f"layers.{teacher.checkpoint.config.layers - 1}."
        target = {name: teacher.tensor(last + name) for name in ("gate", "up", "mlp_norm")}
        target |= {name: teacher.tensor(name) for name in ("norm", "head")}
        start.begin(head, target, tokens, batches)
    return EagleStudent(head, rates(head, lambda: head.steps(batches[0], 1)), steps)
