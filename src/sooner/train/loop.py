"""The training loop of every draft: AdamW, resuming to the same weights, and acceptance on held-out answers."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from sooner.errors import InputError
from sooner.train.documents import Document
from sooner.train.measure import Measured
from sooner.train.store import Store, batches, replace, split

BETAS = (0.9, 0.95)
CLIP = 1.0
WARMUP = 20  # updates
COOLING = 0.5  # the last part of the tokens, over which the rate falls to zero


class Student(Protocol):
    """A draft being trained."""

    @property
    def module(self) -> nn.Module: ...

    def groups(self) -> list[dict[str, Any]]:
        """Of parameters to train, each with the "scale" of its rate."""
        ...

    def loss(self, documents: Sequence[Document]) -> Tensor:
        """The mean over the documents' answers."""
        ...

    def measure(self, documents: Sequence[Document]) -> Measured: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """tokens: answer tokens to train on in all, every epoch counted. patience: measurements without a better one, after
    which training cools down early. measure_every: seconds of training between two measurements with a checkpoint."""

    tokens: int
    rate: float = 0.03
    batch: int = 800
    seed: int = 0
    measure_every: float = 240.0
    patience: int = 8


@dataclass(slots=True)
class Progress:
    """Where training is: everything but weights that a checkpoint has to hold."""

    tokens: int = 0
    epoch: int = 0
    batch: int = 0  # of the epoch, done
    updates: int = 0
    seconds: float = 0.0
    end: int = 0  # tokens at which the rate is zero
    curve: list[dict[str, Any]] = field(default_factory=list)


class Trainer:
    """report: called after every update with the progress and the loss; measured: after every measurement."""

    def __init__(self, student: Student, store: Store, plan: Plan, path: Path) -> None:
        self.student, self.store, self.plan, self.path = student, store, plan, path
        self.optimizer = torch.optim.AdamW(student.groups(), lr=plan.rate, betas=BETAS, weight_decay=0.0)
        self.progress = Progress(end=plan.tokens)
        self.train, self.held = split(len(store.answers))

    def resume(self) -> bool:
        """Takes up a checkpoint where there is one. plan.tokens may have grown since."""
        if not self.path.exists():
            return False
        try:
            kept = torch.load(self.path, weights_only=True)
            self.student.module.load_state_dict(kept["weights"])
            self.optimizer.load_state_dict(kept["optimizer"])
            self.progress = Progress(**kept["progress"])
        except (RuntimeError, KeyError, TypeError, ValueError, EOFError) as error:
            line = str(error).splitlines()[0]
            raise InputError(
                f"checkpoint {self.path} does not fit this training ({line}); give another --out"
            ) from None
        self.progress.end = self.plan.tokens
        return True

    def save(self) -> None:
        content = io.BytesIO()
        weights = self.student.module.state_dict()
        kept = {"weights": weights, "optimizer": self.optimizer.state_dict(), "progress": asdict(self.progress)}
        torch.save(kept, content)
        replace(self.path, content.getvalue())

    def run(self, report: Callable[[Progress, float], None], measured: Callable[[dict[str, Any]], None]) -> None:
        """Trains up to the plan's end. Measures at the start, every `measure_every` seconds, and at the end."""
        if not self.progress.curve:
            measured(self.measure())
        since = time.monotonic()
        for epoch in count(self.progress.epoch):
            for places in self._left(epoch):
                if self.progress.tokens >= self.progress.end:
                    break
                loss = self.update(places)
                report(self.progress, loss)
                if time.monotonic() - since >= self.plan.measure_every:
                    measured(self.measure())
                    since = time.monotonic()
            if self.progress.tokens >= self.progress.end:
                break
            self.progress.epoch, self.progress.batch = epoch + 1, 0
        measured(self.measure())

    def _left(self, epoch: int) -> list[list[int]]:
        """The epoch's batches that are still to do."""
        lengths = [len(answer.answer) for answer in self.store.answers]
        return list(batches(self.train, lengths, self.plan.batch, self.plan.seed, epoch))[self.progress.batch :]

    def update(self, places: Sequence[int]) -> float:
        start = time.monotonic()
        for group in self.optimizer.param_groups:
            group["lr"] = self.plan.rate * group["scale"] * self.factor()
        loss = self.student.loss(self.store.documents(places))
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self.student.module.parameters(), CLIP)
        self.optimizer.step()
        self.progress.tokens += sum(len(self.store.answers[place].answer) for place in places)
        self.progress.batch += 1
        self.progress.updates += 1
        self.progress.seconds += time.monotonic() - start
        return float(loss.detach())

    def factor(self) -> float:
        """Of the rate: rises over the first updates, falls over the last tokens."""
        left = (self.progress.end - self.progress.tokens) / (COOLING * self.progress.end)
        return max(min((self.progress.updates + 1) / WARMUP, left, 1.0), 0.0)

    def measure(self) -> dict[str, Any]:
        """Acceptance on the held-out answers, put into the curve and saved with the weights."""
        with torch.no_grad():
            result = self.student.measure(self.store.documents(self.held))
        p = self.progress
        point = {"tokens": p.tokens, "updates": p.updates, "seconds": round(p.seconds, 1)} | result.summary()
        p.curve.append(point)
        self._stop_early()
        self.save()
        return point

    def _stop_early(self) -> None:
        """Cools down from here on where the held-out loss has not improved for `patience` measurements."""
        losses = [sum(point["loss"]) for point in self.progress.curve]
        if len(losses) - losses.index(min(losses)) > self.plan.patience:
            early = int(self.progress.tokens / (1 - COOLING))
            self.progress.end = min(self.progress.end, early)
