"""Drafters that read the target's hidden states: the same drafts however a sequence came to its ledger, no decay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from torch import Tensor

from sooner.draft.eagle_files import read_eagle
from sooner.draft.heads import Head, HeadDrafter
from sooner.draft.mtp import read_mtp
from sooner.engine.engine import Engine
from sooner.models.decoder import Decoder
from sooner.types import Request, RoundRecord, SamplingParams, Speculation
from tests.support import heads
from tests.support.engines import Answer, engine, plain, request, run
from tests.support.heads import (
    VOCABULARY,
    WIDTH,
    eagle1_tensors,
    eagle3_settings,
    eagle3_tensors,
    layer_settings,
    mtp_tensors,
)

SAMPLED = SamplingParams(temperature=0.8, seed=5, max_tokens=40)
PROMPTS = [[(7 * i + 3 * j * j) % VOCABULARY for i in range(20 + 5 * j)] for j in range(8)]


@cache
def eagle3() -> Head:
    with TemporaryDirectory() as folder:
        path = heads.write_head(Path(folder), eagle3_settings("original"), eagle3_tensors())
        return read_eagle(path, heads.target(), "auto")


def speculative(head: Head | None = None, decoder: Decoder | None = None, **options: object) -> tuple[Engine, Rounds]:
    drafter = HeadDrafter("head", head or eagle3(), VOCABULARY, 64)
    return engine({"head": drafter}, decoder or heads.target(), **options)


Rounds = list[RoundRecord]
Drafts = dict[int, tuple[int, ...]]  # by the ledger's length


def drafts(records: Rounds, one: Request) -> Drafts:
    return {record.start: record.draft for record in records if record.request_id == one.id and record.draft}


@cache
def alone() -> list[tuple[list[int], Drafts]]:
    """Tokens and drafts of each prompt by itself, prompts read in one pass, nothing shared."""
    machine, records = speculative(prefix_cache=False)
    requests = [request(prompt, SAMPLED, "head") for prompt in PROMPTS]
    answers = [run(machine, [one])[0] for one in requests]
    return [(answer.tokens, drafts(records, one)) for answer, one in zip(answers, requests)]


def assert_the_same(records: Rounds, requests: Sequence[Request], answers: Sequence[Answer]) -> None:
    """Where a draft was made of the same ledger it is the same, and nearly all are."""
    shared = total = 0
    for one, answer, (tokens, wanted) in zip(requests, answers, alone()):
        assert answer.tokens == tokens
        got = drafts(records, one)
        both = got.keys() & wanted.keys()
        assert {start: got[start] for start in both} == {start: wanted[start] for start in both}
        shared, total = shared + len(both), total + len(wanted)
    assert shared > 0.7 * total


def test_drafts_are_those_of_the_sequence_alone_in_a_batch_of_8_with_prompts_in_chunks() -> None:
    machine, records = speculative(max_rows=24)
    requests = [request(prompt, SAMPLED, "head") for prompt in PROMPTS]
    assert_the_same(records, requests, run(machine, requests))


def test_and_after_preemption() -> None:
    machine, records = speculative(cache_tokens=256, prefix_cache=False)
    requests = [request(prompt, SAMPLED, "head") for prompt in PROMPTS]
    answers = run(machine, requests)
    assert machine.preemptions >= 3
    assert_the_same(records, requests, answers)


@pytest.mark.parametrize("max_rows", [24, 512])
def test_and_after_prefix_hits(max_rows: int) -> None:
    machine, records = speculative(max_rows=max_rows)
    first = [request(prompt, SAMPLED, "head") for prompt in PROMPTS]
    run(machine, first)
    records.clear()
    second = [request(prompt, SAMPLED, "head") for prompt in PROMPTS]
    answers = run(machine, second)
    assert [a.stats.cached_tokens for a in answers] == [(len(p) - 1) // 16 * 16 for p in PROMPTS]
    assert_the_same(records, second, answers)


def test_a_prefix_that_only_the_target_knows_is_read_again() -> None:
    machine, records = speculative()
    run(machine, [request(prompt, SAMPLED) for prompt in PROMPTS])
    requests = [request(prompt, SAMPLED, "head") for prompt in PROMPTS]
    answers = run(machine, requests)
    assert all(a.stats.cached_tokens == 0 for a in answers)
    assert_the_same(records, requests, answers)


def test_heads_that_tap_other_layers_do_not_disturb_each_other(tmp_path: Path) -> None:
    path = heads.write_head(tmp_path, layer_settings(), eagle1_tensors())
    other = HeadDrafter("other", read_eagle(path, heads.target(), "auto"), VOCABULARY, 64)
    machine, records = engine({"head": HeadDrafter("head", eagle3(), VOCABULARY, 64), "other": other}, heads.target())
    requests = [request(prompt, SAMPLED, name) for prompt, name in zip(PROMPTS, ("head", "other") * 4)]
    answers = run(machine, requests)
    assert any(record.drafter == "other" for record in records)
    assert [answer.tokens for answer in answers] == [tokens for tokens, _ in alone()]
    for i in range(0, len(PROMPTS), 2):
        assert drafts(records, requests[i]) == alone()[i][1]


@pytest.mark.parametrize("rule", ["match", "rejection", "block"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_every_rule(rule: str, temperature: float) -> None:
    machine, records = speculative()
    params = SamplingParams(temperature=temperature, seed=5, max_tokens=24, presence_penalty=0.4)
    requests = [request(prompt, params, "head", rule=rule) for prompt in PROMPTS[:3]]  # type: ignore[arg-type]
    answers = run(machine, requests)
    assert any(record.draft for record in records)
    assert not any(answer.stats.drafter_error for answer in answers)
    if rule == "match" or not temperature:
        assert [answer.tokens for answer in answers] == [plain(one, heads.target()).tokens for one in requests]


def test_the_policy_may_ask_now_and_then() -> None:
    machine, _ = speculative()
    requests = [replace(request(p, SAMPLED, "head"), speculation=Speculation(("head",))) for p in PROMPTS]
    answers = run(machine, requests)
    assert [answer.tokens for answer in answers] == [tokens for tokens, _ in alone()]
    assert not any(answer.stats.drafter_error for answer in answers)


def test_who_does_not_draft_from_features_has_none_taken() -> None:
    machine, _ = speculative()
    machine.add(request(PROMPTS[0], SAMPLED))
    turns, _ = machine.scheduler.schedule()
    assert machine.parts.taps(turns) == []


class Blind(HeadDrafter):
    def observe(self, key: int, tokens: Sequence[int], start: int, features: Tensor) -> None:
        raise RuntimeError("cannot see")


class Careless(HeadDrafter):
    def adopt(self, key: int, tokens: Sequence[int]) -> int:
        raise RuntimeError("adopts nothing")


@pytest.mark.parametrize("kind", [Blind, Careless])
@pytest.mark.filterwarnings("ignore:drafter")
def test_one_that_fails_is_switched_off_and_named(kind: type[HeadDrafter]) -> None:
    machine, _ = engine({"head": kind("head", eagle3(), VOCABULARY, 64)}, heads.target())
    one = request(PROMPTS[0], SAMPLED, "head")
    [answer] = run(machine, [one])
    assert answer.tokens == plain(one, heads.target()).tokens
    assert "drafter 'head' failed and was switched off" in answer.stats.drafter_error


THEIRS = {
    **{name: f"self_attn.{name}_proj" for name in "qkvo"},
    **{name: f"mlp.{name}_proj" for name in ("gate", "up", "down")},
    "mlp_norm": "post_attention_layernorm",
}


def copyable() -> tuple[Decoder, dict[str, Tensor]]:
    """A target of one layer with a window, whose norms are plain and whose embeddings have size 1, and its tensors.

    Heads can compute the very same from the token alone. Their entries lie one position lower and begin with the second
    token, which beyond the window makes no difference.
    """
    config = heads.target_config(layers=1, window=8)
    tensors = heads.random_tensors(config.shapes(), seed=2)
    for name, tensor in tensors.items():
        if name.endswith("norm"):
            tensors[name] = torch.ones_like(tensor)
    tensors["embed"] /= tensors["embed"].square().mean(-1, keepdim=True).sqrt()
    return heads.build_target(config, tensors), tensors


def copying_eagle1(folder: Path) -> tuple[Decoder, Head]:
    """It has no norm before its layer, which embeddings of size 1 do not need, and none before the target's head."""
    target, tensors = copyable()
    mine = eagle1_tensors() | {
        "embed_tokens.weight": tensors["embed"],
        "fc.weight": torch.eye(WIDTH, 2 * WIDTH),
        "fc.bias": torch.zeros(WIDTH),
    }
    mine |= {f"layers.0.{their}.weight": tensors[f"layers.0.{our}"] for our, their in THEIRS.items()}
    settings = layer_settings(model_type="mistral", sliding_window=8)
    return target, read_eagle(heads.write_head(folder, settings, mine), target, "auto")


def copying_mtp(folder: Path) -> tuple[Decoder, Head]:
    target, tensors = copyable()
    mine = {name: torch.ones_like(t) for name, t in mtp_tensors().items() if name.endswith("layernorm.weight")}
    at = "model.mtp_layers.0"
    mine[f"{at}.input_proj.weight"] = torch.cat([torch.zeros(WIDTH, WIDTH), torch.eye(WIDTH)], 1)
    mine |= {f"{at}.{their}.weight": tensors[f"layers.0.{our}"] for our, their in THEIRS.items()}
    return target, read_mtp(heads.write_head(folder, {}, mine), target, "auto")


@pytest.mark.parametrize(("copying", "temperature"), [(copying_eagle1, 0.0), (copying_mtp, 0.0), (copying_mtp, 0.8)])
def test_a_head_that_copies_its_target_is_accepted_whole_for_500_tokens(
    copying: Callable[[Path], tuple[Decoder, Head]], temperature: float, tmp_path: Path
) -> None:
    """Sampled text too: under `match` the head draws with the target's own noise."""
    target, head = copying(tmp_path)
    machine, records = speculative(head, target)
    params = SamplingParams(temperature=temperature, seed=3, max_tokens=500)
    [answer] = run(machine, [request(PROMPTS[0], params, "head", draft_tokens=4)])
    assert answer.tokens == plain(request(PROMPTS[0], params), target).tokens
    judged = [record for record in records if record.draft]
    assert len(judged) == 100  # the first token comes with the prompt, then five come each round
    assert all(record.accepted == len(record.draft) for record in judged)
