"""On SmolLM2 every drafter gives plain tokens: 12 prompts, 96 tokens, greedy and sampled with top-p and penalties."""

import functools
import hashlib
from typing import Any

import pytest

from sooner.draft.load import load_lookup
from sooner.draft.model import ModelDrafter
from sooner.draft.protocol import Drafter
from sooner.engine import step
from sooner.types import Draft, SamplingParams
from tests.support import smollm2
from tests.support.engines import engine, request, run

PARAMS = {
    "greedy": SamplingParams(temperature=0.0, max_tokens=96),
    "sampled": SamplingParams(
        temperature=0.8, seed=7, top_p=0.95, repetition_penalty=1.1, frequency_penalty=0.2, max_tokens=96
    ),
}
DRAFTERS = ["ngram", "suffix", "model:self/3"]


def make(name: str, weights: str) -> Drafter:
    target = smollm2.decoder("auto", weights)
    return (
        ModelDrafter(name, target.first_layers(3), target.config.vocabulary, 256)
        if name.startswith("model:")
        else load_lookup(name)
    )


@functools.cache
def answers(drafter: str | None, kind: str, weights: str) -> list[list[int]]:
    drafters = {drafter: make(drafter, weights)} if drafter else {}
    machine, _ = engine(drafters, smollm2.decoder("auto", weights), cache_tokens=4096)
    eos = smollm2.checkpoint().config.eos
    requests = [  # one to four drafted tokens side by side
        request(smollm2.chat_ids(prompt), PARAMS[kind], drafter, 1 + i % 4, eos=eos)
        for i, prompt in enumerate(smollm2.PROMPTS)
    ]
    return [a.tokens for a in run(machine, requests)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", PARAMS)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_every_drafter_in_float32(drafter: str, kind: str) -> None:
    assert answers(drafter, kind, "f32") == answers(None, kind, "f32")
    assert sum(map(len, answers(None, kind, "f32"))) > 300


@pytest.mark.slow
def test_the_files_own_format_gives_the_tokens_of_float32() -> None:
    """A product uses the float32 value of a quantised weight, so the format changes memory and not results."""
    assert answers("suffix", "greedy", "auto") == answers(None, "greedy", "f32")


@pytest.mark.slow
@pytest.mark.parametrize("drafter", ["suffix", "model:self/3"])
def test_the_logits_behind_every_token_have_plain_decodings_bits(drafter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four requests side by side: a row of a draft, beside rows of others, is the row that plain decoding has."""
    plain, drafted = (rows_behind_tokens(name, monkeypatch) for name in (None, drafter))
    assert sum(map(len, plain)) > 100
    for alone, beside in zip(plain, drafted, strict=True):
        assert alone == beside[: len(alone)]  # a draft may have been verified past the end of the answer


def rows_behind_tokens(drafter: str | None, monkeypatch: pytest.MonkeyPatch) -> list[list[bytes]]:
    """Of each request the hashes of the logits that chose its tokens, in order."""
    rows: dict[int, list[bytes]] = {}
    verify = step.verify

    def watching(parts: Any, turn: Any, proposal: Draft, rule: Any, logits: Any) -> Any:
        verdict = verify(parts, turn, proposal, rule, logits)
        if verdict:
            used = logits[: len(verdict.path) + 1]
            rows.setdefault(turn.sequence.key, []).extend(hashlib.sha1(row.tobytes()).digest() for row in used)
        return verdict

    with monkeypatch.context() as patch:
        patch.setattr(step, "verify", watching)
        drafters = {drafter: make(drafter, "auto")} if drafter else {}
        machine, _ = engine(drafters, smollm2.decoder("auto", "auto"), cache_tokens=4096)
        prompts = [smollm2.chat_ids(prompt) for prompt in smollm2.PROMPTS[:4]]
        eos = smollm2.checkpoint().config.eos
        params = SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True)
        run(machine, [request(p, params, drafter, eos=eos) for p in prompts])
    return [rows[key] for key in sorted(rows)]
