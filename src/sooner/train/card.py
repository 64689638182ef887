"""A model card beside a trained draft: data, command, time, and acceptance as it was measured."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import torch

from sooner.train.loop import Trainer
from sooner.train.teach import Job

CARD = """# {kind} for {model}

Trained by `{command}`.

- Data: {answers:,} answers of the target itself to prompts of {source}, {tokens:,} tokens, of which one in 17 is
  held out; temperatures {temperatures}.
- Training: {seen:,} answer tokens in {updates:,} updates, {minutes:.0f} minutes on {threads} processor threads, seed
  {seed}.
- On the held-out answers, by position in the draft, each given the ones before it: at temperature 0 accepted
  {acceptance}; with {drafted} tokens drafted that is {tokens_a_round} tokens a round. At temperature 0.8 the first
  position overlaps the target's distribution by {overlap}. Loss {loss}.

`curve.json` has these figures against the tokens seen.
"""


def write_card(job: Job, kind: str, trainer: Trainer) -> None:
    (job.out / "README.md").write_text(card(job, kind, trainer))
    write_curve(job.out / "curve.json", trainer)


def write_curve(path: Path, trainer: Trainer) -> None:
    path.write_text(json.dumps({"plan": asdict(trainer.plan), "curve": trainer.progress.curve}, indent=1) + "\n")


def card(job: Job, kind: str, trainer: Trainer) -> str:
    answers, progress, last = trainer.store.answers, trainer.progress, trainer.progress.curve[-1]
    sources = [job.prompts.name] if job.prompts else []
    sources += ["the target's own invention"] if job.invent else []
    kinds = Counter(answer.temperature for answer in answers)
    return CARD.format(
        kind=kind,
        model=job.model,
        command=" ".join(["sooner", *sys.argv[1:]]),
        answers=len(answers),
        source=" and ".join(sources),
        tokens=sum(len(answer.answer) for answer in answers),
        temperatures=", ".join(f"{temperature} ({count})" for temperature, count in sorted(kinds.items())),
        seen=progress.tokens,
        updates=progress.updates,
        minutes=progress.seconds / 60,
        threads=torch.get_num_threads(),
        seed=job.plan.seed,
        drafted=len(last["acceptance"]),
        **{name: _numbers(last[name]) for name in ("acceptance", "tokens_a_round", "overlap", "loss")},
    )


def _numbers(value: float | list[float]) -> str:
    return ", ".join(f"{each:.3f}" for each in (value if isinstance(value, list) else [value]))
