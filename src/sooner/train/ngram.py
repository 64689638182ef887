"""Counts the target's answers into an n-gram model (draft/ngram_model.py): learning without a gradient.

A next token's chance after a context is interpolated with the shorter context's (Witten and Bell 1991, with a weight
for each length): p_n(t) = (count(t) + DOUBT[n] p_(n-1)(t)) / (times + DOUBT[n]). Where a longer context says nothing
that the shorter one does not say, it is left out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from sooner.draft.ngram_model import FILE, KIND, MIX, NgramModel, fingerprint, read_ngram
from sooner.errors import InputError
from sooner.train.store import Answer, split
from sooner.train.teach import Job, Teacher

# By length of context: occurrences that halve the trust. With these held-out answers are likeliest, and what is said of
# a token is what becomes of it, from 0.1 to 0.99. A context of three or four tokens has mostly been seen once.
DOUBT = (0.0, 20.0, 6.0, 10.0, 15.0, 10.0, 6.0, 6.0, 6.0)
SAME = 0.1  # contexts whose token is the shorter one's, and whose chance is this near, are left out
STEPS = 3  # drafted tokens that are measured
SHARES = (0.125, 0.25, 0.5, 1.0)  # of the answers, that the curve counts


@dataclass(frozen=True, slots=True)
class Places:
    """Answer tokens of all answers: the token, how many stand before it, and the keys of its contexts by length."""

    tokens: NDArray[np.int64]
    before: NDArray[np.int64]
    keys: list[NDArray[np.uint64]]  # [order] of [tokens]; of a context longer than there is text, nothing is meant

    @classmethod
    def of(cls, answers: Sequence[Answer], order: int) -> Places:
        each = [_places(answer, order) for answer in answers]
        tokens, before = (np.concatenate([part[i] for part in each]) for i in (0, 1))
        return cls(tokens, before, [np.concatenate([keys[n] for _, _, keys in each]) for n in range(order)])

    def only(self, kept: NDArray[np.bool_]) -> Places:
        return Places(self.tokens[kept], self.before[kept], [keys[kept] for keys in self.keys])


def _places(answer: Answer, order: int) -> tuple[NDArray[np.int64], NDArray[np.int64], list[NDArray[np.uint64]]]:
    text = np.array(answer.prompt + answer.answer, np.uint64)
    before = np.arange(len(answer.prompt), len(text))
    key, keys = np.zeros(len(before), np.uint64), []
    for back in range(1, order + 1):
        key = key * np.uint64(MIX) + text[before - back] + np.uint64(1)
        keys.append(key)
    return text[before].astype(np.int64), before, keys


@dataclass(frozen=True, slots=True)
class Level:
    """Contexts of one length: of each the likeliest token and its chance; and what each place is told by it."""

    keys: NDArray[np.uint64]
    tokens: NDArray[np.int64]
    chances: NDArray[np.float64]
    shorter: NDArray[np.int64]  # the context without its first token, a place in the level before
    context: NDArray[np.int64]  # [places]
    chance: NDArray[np.float64]  # [places] of the token that is there


def count_level(places: Places, length: int, before: Level) -> Level:
    keys, first, context, times = np.unique(
        places.keys[length - 1], return_index=True, return_inverse=True, return_counts=True
    )
    pair = context * (int(places.tokens.max(initial=0)) + 1) + places.tokens
    _, at, inverse, count = np.unique(pair, return_index=True, return_inverse=True, return_counts=True)
    doubt = DOUBT[length]
    chance = (count + doubt * before.chance[at]) / (times[context[at]] + doubt)
    best = np.lexsort((chance, context[at]))
    best = best[np.searchsorted(context[at][best], np.arange(len(keys)), side="right") - 1]  # the last of each context
    shorter = before.context[first]
    told = doubt * before.chances[shorter] / (times + doubt)  # the shorter one's token, were it new here
    tokens = np.where(chance[best] >= told, places.tokens[at][best], before.tokens[shorter])
    return Level(keys, tokens, np.maximum(chance[best], told), shorter, context, chance[inverse])


def empty_level(places: Places) -> Level:
    """The context of no tokens: how frequent each token is."""
    frequency = np.bincount(places.tokens) / len(places.tokens)
    top = np.array([frequency.argmax()])
    nowhere = np.zeros(len(places.tokens), np.int64)
    return Level(np.zeros(1, np.uint64), top, frequency[top], np.zeros(1, np.int64), nowhere, frequency[places.tokens])


def count(answers: Sequence[Answer], order: int) -> NgramModel:
    """The n-gram model of some answers."""
    places = Places.of(answers, order)
    before, kept = empty_level(places), []
    told_token, told_chance = before.tokens, np.zeros(1)
    for length in range(1, order + 1):
        there = places.before >= length
        places = places.only(there)
        before = replace(before, context=before.context[there], chance=before.chance[there])
        level = count_level(places, length, before)
        tokens, chances = told_token[level.shorter], told_chance[level.shorter]
        new = (level.tokens != tokens) | (np.abs(level.chances - chances) >= SAME)
        kept.append((level.keys[new], level.tokens[new], level.chances[new]))
        told_token, told_chance = np.where(new, level.tokens, tokens), np.where(new, level.chances, chances)
        before = level
    keys, tokens, chances = (np.concatenate(part) for part in zip(*kept))
    keys, first = np.unique(keys, return_index=True)
    rounded = np.round(255 * chances[first]).astype(np.uint8)
    return NgramModel.of(order, keys, tokens[first].astype(np.uint32), rounded)


def joined(model: NgramModel, earlier: NgramModel, answers: Sequence[Answer]) -> NgramModel:
    """The model, and of an earlier one the contexts that its own answers do not have."""
    places = Places.of(answers, model.order)
    seen = np.concatenate([keys[places.before > length] for length, keys in enumerate(places.keys)])
    taken = ~np.isin(_arrays(earlier)["keys"], seen)
    pairs = zip(_arrays(model).values(), _arrays(earlier).values())
    parts = [np.concatenate([mine, theirs[taken]]) for mine, theirs in pairs]
    order = np.argsort(parts[0])
    return NgramModel.of(model.order, parts[0][order], parts[1][order], parts[2][order])


def _arrays(model: NgramModel) -> dict[str, NDArray[Any]]:
    return {
        "keys": np.frombuffer(model.keys, np.uint64),
        "tokens": np.frombuffer(model.tokens, np.uint32),
        "chances": np.frombuffer(model.chances, np.uint8),
    }


def measure(model: NgramModel, answers: Sequence[Answer]) -> dict[str, Any]:
    """By position in the draft, each given the ones before: accepted shares of answers at temperature 0; tokens a round
    where STEPS are drafted after every token. As train/measure.py counts."""
    tried, accepted = [0] * STEPS, [0] * STEPS
    for answer in answers:
        text = answer.prompt + answer.answer
        for at in range(len(answer.prompt) + 1, len(text) - STEPS + 1) if answer.temperature == 0 else ():
            for step, (token, _) in zip(range(STEPS), model.walk(text[max(0, at - model.order) : at])):
                tried[step] += 1
                if token != text[at + step]:
                    break
                accepted[step] += 1
    rounds = max(tried[0], 1)
    return {
        "acceptance": [round(a / max(t, 1), 4) for a, t in zip(accepted, tried)],
        "tokens_a_round": round(1 + sum(accepted) / rounds, 4),
    }


CARD = """# An n-gram model of {model}'s answers

Counted by `{command}`.
After each of {contexts:,} contexts of up to {order} tokens it knows the likeliest next token and its chance{earlier}.

- Data: {answers:,} answers of the target itself to prompts of {source}, {tokens:,} tokens;
  one answer in 17 is held out.
- On the held-out answers at temperature 0, by position in the draft, each given the ones before it, accepted
  {acceptance}; with {steps} tokens drafted that is {tokens_a_round:.3f} tokens a round.

`curve.json` has these figures against the tokens counted.
"""


def train_ngram(teacher: Teacher, order: int, start: Path | None = None) -> None:
    """Writes model.safetensors, config.json, README.md and curve.json into the job's folder.

    start: the folder of an earlier model, whose contexts fill the gaps. The figures are without them: it may have
    counted what is held out here.
    """
    earlier = read_start(start, order, teacher.checkpoint.tokenizer.tokens) if start else None
    answers = teacher.answers()
    train, held = split(len(answers))
    left_out = [answers[place] for place in held]
    curve = []
    for share in SHARES:
        counted = [answers[place] for place in train[: max(1, int(share * len(train)))]]
        model = count(counted, order)
        curve.append({"tokens": sum(len(answer.answer) for answer in counted), **measure(model, left_out)})
        teacher.reports.measured(curve[-1])
    own = len(model.keys)
    if earlier:
        model = joined(model, earlier, counted)
    export_ngram(model, teacher.checkpoint.tokenizer.tokens, teacher.job.out)
    (teacher.job.out / "curve.json").write_text(json.dumps({"order": order, "curve": curve}, indent=1) + "\n")
    (teacher.job.out / "README.md").write_text(card(teacher.job, answers, model, own, curve[-1]))


def read_start(folder: Path, order: int, vocabulary: Sequence[str | None]) -> NgramModel:
    earlier = read_ngram(folder, vocabulary)
    if earlier.order != order:
        raise InputError(
            f"--start {folder} counts contexts of up to {earlier.order} tokens, --order is {order}; give the same"
        )
    return earlier


def export_ngram(model: NgramModel, vocabulary: Sequence[str | None], folder: Path) -> None:
    save_file(_arrays(model), folder / FILE)
    config = {
        "model_type": KIND,
        "order": model.order,
        "vocab_size": len(vocabulary),
        "tokenizer": fingerprint(vocabulary),
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def card(job: Job, answers: Sequence[Answer], model: NgramModel, own: int, last: dict[str, Any]) -> str:
    sources = [job.prompts.name] if job.prompts else []
    sources += ["the target's own invention"] if job.invent else []
    taken = len(model.keys) - own
    return CARD.format(
        earlier=f"; {taken:,} of them\nare an earlier model's, without which the figures below are" if taken else "",
        model=job.model,
        command=" ".join(["sooner", *sys.argv[1:]]),
        contexts=len(model.keys),
        order=model.order,
        answers=len(answers),
        source=" and ".join(sources),
        tokens=sum(len(answer.answer) for answer in answers),
        acceptance=", ".join(f"{share:.3f}" for share in last["acceptance"]),
        steps=STEPS,
        tokens_a_round=last["tokens_a_round"],
    )
