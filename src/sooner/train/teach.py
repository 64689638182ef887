"""From a model and prompts to a trained draft: what `sooner train eagle`, `medusa` and `draft` have in common."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sooner.bench.workloads import load_prompts
from sooner.errors import InputError
from sooner.kernels import make_kernels
from sooner.kernels.formats import dequantise
from sooner.llm import LLM
from sooner.models.build import build_decoder
from sooner.models.checkpoint import Checkpoint, open_checkpoint
from sooner.models.decoder import Decoder
from sooner.models.locate import find_model
from sooner.train.answers import IN_FLIGHT, answer, invent
from sooner.train.loop import Plan, Progress, Student, Trainer
from sooner.train.store import HELD_EVERY, Answer, Store, read_answers, read_prompts, replace, split, write_prompts
from sooner.weights.files import read_json


@dataclass(frozen=True, slots=True)
class Job:
    """What the commands are told. cache: bytes of hidden states kept on disk, in `out`/states."""

    model: str
    out: Path
    plan: Plan
    prompts: Path | None = None
    invent: int = 0
    max_tokens: int = 256
    cache: int = 4 << 30
    weights: str = "auto"
    activations: str = "float32"
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class Reports:
    """Where news go: lines, answers so far, an update with its loss, a measurement."""

    line: Callable[[str], None]
    answered: Callable[[int, int], None]
    updated: Callable[[Progress, float], None]
    measured: Callable[[dict[str, Any]], None]


class Teacher:
    """The target as it is needed: its answers, its tensors, and its passes."""

    def __init__(self, job: Job, reports: Reports) -> None:
        self.job, self.reports = job, reports
        self.path = find_model(job.model)
        try:
            job.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot make the folder {job.out}: {error.strerror}; give another --out") from error
        if job.threads is not None:
            torch.set_num_threads(job.threads)

    @cached_property
    def checkpoint(self) -> Checkpoint:
        return open_checkpoint(self.path)

    @cached_property
    def decoder(self) -> Decoder:
        """Apart from the LLM's, whose caches are large; opened only where hidden states are missing."""
        kernels = make_kernels("cpu", self.job.weights, self.job.threads, activations=self.job.activations)
        tensors = dict(open_checkpoint(self.path).tensors)
        return build_decoder(self.checkpoint.config, tensors, kernels, "cpu", self.job.weights)

    def tensor(self, name: str) -> Tensor:
        """One of the target's by our name, float32. A tied head is the embedding."""
        tied = name == "head" and self.checkpoint.config.tied
        return dequantise(self.checkpoint.tensors["embed" if tied else name])

    def answers(self) -> list[Answer]:
        """All answers: those that are there already, and those that are missing."""
        job, out, asked = self.job, self.job.out, what_answers_depend_on(self.job)
        check_same(out / "job.json", asked, out)
        kept, path = out / "prompts.jsonl", out / "answers.jsonl"
        prompts = read_prompts(kept)
        if prompts is not None and len(done := read_answers(path)) >= len(prompts):
            return done
        llm = LLM(
            job.model, weights=job.weights, activations=job.activations, threads=job.threads, max_sequences=IN_FLIGHT
        )
        if prompts is None:
            prompts = self._prompts(llm)
            replace(out / "job.json", (json.dumps(asked, indent=1) + "\n").encode())
            write_prompts(kept, prompts)
        return answer(llm, prompts, job.max_tokens, job.plan.seed, path, self.reports.answered)

    def _prompts(self, llm: LLM) -> list[list[int]]:
        """Of the file and invented, mixed, those that leave room for an answer."""
        job = self.job
        asked = [p.token_ids(llm.tokenizer) for p in load_prompts(job.prompts)] if job.prompts else []
        if job.invent:
            self.reports.line(f"{job.model} invents {job.invent} prompts")
        texts = invent(llm, job.invent, job.max_tokens, job.plan.seed) if job.invent else []
        asked += [llm.chat_prompt([{"role": "user", "content": text}]) for text in texts]
        asked = [
            list(ids) for ids in dict.fromkeys(map(tuple, asked))
        ]  # a held-out prompt must not be learned elsewhere
        fitting = [ids for ids in asked if len(ids) + job.max_tokens <= llm.engine.capacity]
        self.reports.line(
            f"{len(fitting)} prompts, {len(texts)} of them invented; {len(asked) - len(fitting)} too long"
        )
        if len(fitting) < HELD_EVERY:
            remedy = (
                "add --invent 500" if len(fitting) == len(asked) else f"give less than --max-tokens {job.max_tokens}"
            )
            raise InputError(f"{len(fitting)} prompts are too few, at least {HELD_EVERY} are needed; {remedy}")
        order = np.random.default_rng(job.plan.seed).permutation(len(fitting))
        return [fitting[i] for i in order]

    def store(self, answers: Sequence[Answer], taps: tuple[int, ...]) -> Store:
        return Store(self.job.out / "states", answers, taps, lambda: self.decoder, self.job.cache)


def what_answers_depend_on(job: Job) -> dict[str, Any]:
    """By option; and the batch, on which the order of training depends."""
    return {
        "MODEL": job.model, "--prompts": job.prompts and fingerprint(job.prompts), "--invent": job.invent,
        "--max-tokens": job.max_tokens, "--weights": job.weights,
        "--activations": job.activations, "--batch": job.plan.batch, "--seed": job.plan.seed,
    }  # fmt: skip


def check_same(kept: Path, asked: dict[str, Any], out: Path) -> None:
    """Raises InputError where the folder holds what other options made: it would be taken for what is asked now."""
    made = read_json(kept) if kept.exists() else asked
    for name, value in asked.items():
        if made.get(name) != value:
            raise InputError(f"{out} holds a training with {name} {made.get(name)}, not {value}; give another --out")


def fingerprint(path: Path) -> str:
    try:
        return f"{path.name} (SHA-256 {hashlib.sha256(path.read_bytes()).hexdigest()[:16]})"
    except OSError as error:
        raise InputError(f"cannot read prompts from {path}: {error}") from error


def train(student: Student, store: Store, teacher: Teacher) -> Trainer:
    """Trains the student, or goes on after a kill."""
    trainer = Trainer(student, store, teacher.job.plan, teacher.job.out / "checkpoint.pt")
    if trainer.resume():
        teacher.reports.line(f"resumed at {trainer.progress.tokens:,} tokens")
    trainer.run(teacher.reports.updated, teacher.reports.measured)
    return trainer


def frequent(answers: Sequence[Answer], size: int, vocabulary: int, always: Sequence[int]) -> Tensor:
    """The `size` tokens most frequent in answers, ascending; of equals the lower id; `always` are among them."""
    train, _ = split(len(answers))
    counts = np.zeros(vocabulary, np.int64)
    for place in train:
        np.add.at(counts, list(answers[place].answer), 1)
    counts[list(always)] = np.iinfo(np.int64).max
    if size > vocabulary:
        raise InputError(f"--vocabulary is {size}, the target has {vocabulary} tokens; give at most that")
    return torch.from_numpy(np.sort(np.argsort(-counts, kind="stable")[:size]))
