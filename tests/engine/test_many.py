"""Batches of every size and every setting answer as each request would alone (CASES.md 13, 15, 18, 21)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from sooner.draft.history import HistoryDrafter
from sooner.draft.load import load_lookup
from sooner.draft.model import ModelDrafter
from sooner.draft.protocol import Drafter
from sooner.engine.engine import Engine
from sooner.models.structure import Structures
from sooner.models.tokenizer import TextStream
from sooner.types import Request, SamplingParams, Speculation, Structured
from tests.support import smollm2
from tests.support.drafters import SamplingDrafter
from tests.support.engines import VOCABULARY, Answer, engine, plain, request, run, tiny_decoder
from tests.support.structures import FORMS, structured

SAMPLING: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0},
    {"temperature": 0.8, "top_p": 0.9},
    {"temperature": 1.2, "top_k": 7, "min_p": 0.02},
    {"repetition_penalty": 1.3, "presence_penalty": 0.4},
    {"temperature": 0.0, "frequency_penalty": 2.0},
    {"frequency_penalty": -2.0, "logit_bias": {3: 2.0}},
    {"temperature": 0.7, "min_tokens": 6, "stop_token_ids": (5, 9)},
)
DRAFTERS = ("suffix", "model", "sampling", "grammar", "ngram", "history", None)


def drafters() -> dict[str, Drafter]:
    lookups: dict[str, Drafter] = {name: load_lookup(name) for name in ("suffix", "ngram", "grammar")}
    models: dict[str, Drafter] = {
        "model": ModelDrafter("model", tiny_decoder(9, 1), VOCABULARY, 96),
        "sampling": SamplingDrafter(VOCABULARY),
        "history": HistoryDrafter(),
    }
    return lookups | models


def mixed(count: int) -> list[Request]:
    """Requests of which no two are alike; every fifth has a form to follow."""
    requests = []
    for i in range(count):
        drafter, k, prompt = DRAFTERS[i % 7], i % 6, [(i * j + j) % VOCABULARY for j in range(1, 2 + (i * 5) % 40)]
        settings = {**SAMPLING[(i * 3) % 7], "seed": i, "max_tokens": 8 + i % 9}
        if i % 5 == 4:
            kept = {name: settings[name] for name in ("temperature", "seed", "top_p") if name in settings}
            requests.append(structured(sorted(FORMS)[i % len(FORMS)], prompt, drafter, k, max_tokens=20, **kept))
        else:
            requests.append(request(prompt, SamplingParams(**settings), drafter, k, history="all"))
    return requests


@pytest.fixture(scope="module")
def alone() -> list[list[int]]:
    return [plain(one).tokens for one in mixed(32)]


@pytest.mark.parametrize("size", range(1, 33))
def test_a_batch_of_any_size_equals_serial_plain_decoding(size: int, alone: list[list[int]]) -> None:
    machine, records = engine(drafters(), max_rows=64, max_sequences=32, cache_tokens=16 * 150)
    answers = run(machine, mixed(size))
    assert [a.tokens for a in answers] == alone[:size]
    assert not any(a.stats.drafter_error for a in answers)
    assert size < 3 or {r.drafter for r in records} >= {"model", "sampling"}


class Preempting(Engine):
    """Preempts the newest sequence before the round that `when` names."""

    when = 0

    def step(self) -> list[object]:  # type: ignore[override]
        self.when -= 1
        if self.when == 0 and self.scheduler.running:
            victim = self.scheduler.running[-1]
            self.scheduler._preempt(victim)
            self._forget(victim)
            assert victim.table.length == 0
        return super().step()  # type: ignore[return-value]


@pytest.mark.parametrize("name", ["model", "sampling", "suffix", "grammar"])
def test_preemption_at_every_round_changes_nothing(name: str) -> None:
    """The newest of two sequences loses its pages before round 1, 2, 3, ...; the drafter forgets it."""
    params = SamplingParams(temperature=0.9, seed=3, repetition_penalty=1.2, max_tokens=18)
    first = request([5, 4, 3], replace(params, temperature=0.0), name, 2)
    second = structured("schema", [7, 7, 1], name, 3, max_tokens=18) if name == "grammar" else request(
        list(range(1, 20)), params, name, 3
    )  # fmt: skip
    wanted = [plain(first).tokens, plain(second).tokens]
    for when in range(1, 22):
        machine = Preempting(tiny_decoder(), drafters(), cache_tokens=1024)
        machine.when = when
        ids = [f"{when} a", f"{when} b"]
        answers = run(machine, [replace(one, id=id) for one, id in zip((first, second), ids)])
        assert [a.tokens for a in answers] == wanted, when
        assert not any(a.stats.drafter_error for a in answers)


def test_penalties_count_every_committed_token_of_a_round() -> None:
    """CASES.md 13: several tokens are committed a round, and the penalties of -2 and +2 give different texts."""
    texts = []
    for penalty in (-2.0, 2.0):
        params = SamplingParams(temperature=0.0, frequency_penalty=penalty, max_tokens=40)
        machine, _ = engine({"same": ModelDrafter("same", tiny_decoder(), VOCABULARY, 96)})
        [done] = run(machine, [one := request([1, 2, 3], params, "same", 4)])
        assert done.tokens == plain(one).tokens
        assert (done.stats.tokens_per_round or 0) > 4
        texts.append(done.tokens)
    assert len(set(texts[0])) < len(set(texts[1])) / 2


def test_an_answer_says_that_it_was_not_drafted() -> None:
    """CASES.md 34."""
    machine, records = engine(drafters())
    one = replace(request([1, 2, 3]), speculation=Speculation())
    [done] = run(machine, [one])
    assert done.stats.drafted == 0
    assert {r.reason for r in records if r.reason != "prefill"} == {"no drafter was asked for"}


SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "count": {"type": "integer", "maximum": 99}},
    "required": ["name", "count"],
    "additionalProperties": False,
}


@pytest.mark.slow
def test_eight_at_once_on_smollm2_equal_serial_plain_decoding() -> None:
    target, opened = smollm2.decoder(), smollm2.checkpoint()
    vocabulary, eos = target.config.vocabulary, opened.config.eos
    forms = Structures(opened.tokenizer, vocabulary, eos)
    names = ("model", "suffix", "ngram", "grammar", "model", "suffix", None, "ngram")

    def batch(drafting: bool) -> list[Request]:
        requests = []
        for i, (prompt, name) in enumerate(zip(smollm2.PROMPTS, names)):
            form = Structured(json_schema=SCHEMA) if i in (3, 5) else None
            settings = {name: value for name, value in SAMPLING[i % 7].items() if name != "stop_token_ids"}
            params = SamplingParams(**settings, seed=i, max_tokens=32, structured=form)
            structure = forms.compile(form) if form else None
            drafter = name if drafting else None
            requests.append(request(smollm2.chat_ids(prompt), params, drafter, 4, eos=eos, structure=structure))
        return requests

    def machine() -> Engine:
        lookups: dict[str, Drafter] = {name: load_lookup(name) for name in ("suffix", "ngram", "grammar")}
        model = ModelDrafter("model", target.first_layers(3), vocabulary, 256)
        stream = lambda: TextStream(opened.tokenizer)  # noqa: E731
        return engine(lookups | {"model": model}, target, cache_tokens=4096, detokenizer=stream)[0]

    together: list[Answer] = run(machine(), batch(True))
    alone = [run(machine(), [one])[0] for one in batch(False)]
    assert [a.tokens for a in together] == [a.tokens for a in alone]
    assert sum(a.stats.drafted for a in together) > 50
    for i in (3, 5):
        if together[i].reason == "stop":
            assert set(json.loads(together[i].text)) == {"name", "count"}
