"""Answers on disk, and what the target computed over them: read where it is kept, computed anew where it is not."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray

from sooner.cache.paged import Table, pages_for
from sooner.errors import InputError
from sooner.models.decoder import Decoder
from sooner.models.runner import Span, tapped
from sooner.train.documents import LABELS, Document

HELD_EVERY = 17  # one answer of so many is held out; odd, so that held answers alternate in temperature too


@dataclass(frozen=True, slots=True)
class Answer:
    """Token ids of a prompt and of the target's answer, drawn at `temperature`."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    temperature: float


def read_answers(path: Path) -> list[Answer]:
    """What is there so far; a last line that a kill cut short is left out."""
    if not path.exists():
        return []
    lines = path.read_text().split("\n")[:-1]
    try:
        rows = [json.loads(line) for line in lines]
        return [Answer(tuple(row["prompt"]), tuple(row["answer"]), row["temperature"]) for row in rows]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} holds no answers ({error}); remove it, or give another --out") from None


def read_prompts(path: Path) -> list[list[int]] | None:
    """Token ids, one prompt a line; None before they were chosen."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else None


def write_prompts(path: Path, prompts: Sequence[list[int]]) -> None:
    replace(path, "".join(json.dumps(prompt) + "\n" for prompt in prompts).encode())


def write_answers(path: Path, answers: Sequence[Answer]) -> None:
    rows = [json.dumps({"prompt": a.prompt, "answer": a.answer, "temperature": a.temperature}) for a in answers]
    replace(path, "".join(row + "\n" for row in rows).encode())


def replace(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all."""
    part = path.with_name(path.name + ".part")
    part.write_bytes(content)
    os.replace(part, path)


def split(count: int) -> tuple[list[int], list[int]]:
    """Places of the answers to train on, and of those held out."""
    held = [i for i in range(count) if i % HELD_EVERY == HELD_EVERY - 1]
    return sorted(set(range(count)) - set(held)), held


class Store:
    """Documents of `answers`, by place. Their states are kept in `folder` until `limit` bytes are full."""

    def __init__(
        self, folder: Path, answers: Sequence[Answer], taps: tuple[int, ...], decoder: Callable[[], Decoder], limit: int
    ) -> None:
        self.answers, self._folder, self._taps, self._limit = answers, folder, taps, limit
        self._decoder = decoder
        folder.mkdir(parents=True, exist_ok=True)
        self._used = sum(path.stat().st_size for path in folder.glob("*.npz"))

    def documents(self, places: Sequence[int]) -> list[Document]:
        return [self._read(place) or self._compute(place) for place in places]

    def _path(self, place: int) -> Path:
        return self._folder / f"{place:06}.npz"

    def _read(self, place: int) -> Document | None:
        path, answer = self._path(place), self.answers[place]
        if not path.exists():
            return None
        try:
            with np.load(path) as kept:
                states, ids, logprobs, taps = (kept[name] for name in ("states", "ids", "logprobs", "taps"))
        except (OSError, ValueError, KeyError, BadZipFile) as error:
            raise InputError(f"{path} cannot be read ({error}); remove it, and it is computed anew") from None
        if tuple(taps) != self._taps:
            raise InputError(f"{path} holds taps {tuple(taps)}, wanted are {self._taps}; give another --out")
        return document(answer, states, ids, logprobs)

    def _compute(self, place: int) -> Document:
        made = observe(self._decoder(), self.answers[place], self._taps)
        size = made.states.nbytes + made.ids.nbytes + made.logprobs.nbytes
        if self._used + size <= self._limit:
            self.keep(place, made)
            self._used += size
        return made

    def keep(self, place: int, made: Document) -> None:
        path = self._path(place)
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            np.savez(file, states=made.states, ids=made.ids, logprobs=made.logprobs, taps=np.array(self._taps))
        os.replace(part, path)


def document(
    answer: Answer, states: NDArray[np.float16], ids: NDArray[np.uint32], logprobs: NDArray[np.float16]
) -> Document:
    tokens = np.array(answer.prompt + answer.answer, np.uint32)
    return Document(tokens, len(answer.prompt), answer.temperature == 0, states, ids, logprobs)


def observe(decoder: Decoder, answer: Answer, taps: tuple[int, ...]) -> Document:
    """One pass of the target over an answer."""
    read = (answer.prompt + answer.answer)[:-1]
    cache = decoder.new_cache(pages_for(len(read)))
    rows, features = tapped(decoder, cache, [Span(Table(), read, wants=len(answer.answer))], taps)
    logits = torch.from_numpy(rows[0])
    likely = logits.topk(min(LABELS, logits.shape[1]), dim=1)
    logprobs = likely.values - logits.logsumexp(1, keepdim=True)
    states = features[0].to(torch.float16).cpu().numpy()
    return document(answer, states, likely.indices.numpy().astype(np.uint32), logprobs.half().numpy())


def batches(places: Sequence[int], lengths: Sequence[int], tokens: int, seed: int, epoch: int) -> Iterator[list[int]]:
    """One epoch's batches of places: shuffled, all but the last of at least `tokens` answer tokens. Pure."""
    order = np.random.default_rng((seed, epoch)).permutation(len(places))
    batch: list[int] = []
    for index in order:
        batch.append(places[index])
        if sum(lengths[place] for place in batch) >= tokens:
            yield batch
            batch = []
    if batch:
        yield batch
