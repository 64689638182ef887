"""Tiny engines over random weights: every token of the context matters, and a pass takes well below a millisecond."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from typing import Any

import torch

from sooner.draft.protocol import Drafter
from sooner.engine.engine import Engine
from sooner.engine.sequence import Piece
from sooner.engine.stats import Stats
from sooner.kernels import cpu
from sooner.kernels.cpu import CpuKernels
from sooner.kernels.formats import store
from sooner.kernels.reference import TorchKernels
from sooner.models.build import build_decoder
from sooner.models.config import Attention, ModelConfig
from sooner.models.decoder import Decoder
from sooner.models.rope import plain_rope
from sooner.types import FinishReason, Logprob, Request, RoundRecord, Rule, SamplingParams, Speculation

VOCABULARY = 41


@cache
def tiny_decoder(
    seed: int = 0, layers: int = 2, context: int = 256, vocabulary: int = VOCABULARY, torch_kernels: bool = False
) -> Decoder:
    """A Llama of width 32 with random weights, large enough in scale that attention is far from uniform."""
    config = ModelConfig(
        architecture="llama",
        attention=(Attention(plain_rope(10000.0, 16)),) * layers,
        hidden=32,
        heads=2,
        kv_heads=1,
        head_size=16,
        mlp=48,
        vocabulary=vocabulary,
        context=context,
        norm_eps=1e-5,
        tied=True,
    )
    rng = torch.Generator().manual_seed(seed + 9)
    tensors = {
        name: store(
            torch.ones(shape) if len(shape) == 1 else torch.randn(shape, generator=rng) * 1.5 * shape[1] ** -0.5
        )
        for name, shape in config.shapes().items()
    }
    on_torch = torch_kernels or cpu.unavailable()
    return build_decoder(config, tensors, TorchKernels() if on_torch else CpuKernels(1))


@dataclass(slots=True)
class Answer:
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    reason: FinishReason | None = None
    stats: Stats = field(default_factory=Stats)
    pieces: list[Piece] = field(default_factory=list)
    error: str = ""
    prompt_logprobs: tuple[Logprob | None, ...] = ()


_ids = count()


def request(
    prompt: Sequence[int],
    params: SamplingParams | None = None,
    drafter: str | None = None,
    draft_tokens: int = 4,
    rule: Rule = "auto",
    branches: int = 1,
    **fields: Any,
) -> Request:
    """Greedy for 24 tokens, unless told otherwise."""
    params = params or SamplingParams(temperature=0.0, max_tokens=24)
    speculation = Speculation((drafter,) if drafter else (), draft_tokens, rule, branches)
    seed = 11 if params.seed is None else params.seed
    fields = {"seed": seed, "seeded": params.seed is not None, "max_tokens": params.max_tokens} | fields
    return Request(id=f"r{next(_ids)}", prompt=tuple(prompt), params=params, speculation=speculation, **fields)


def engine(
    drafters: Mapping[str, Drafter] | None = None, decoder: Decoder | None = None, **options: Any
) -> tuple[Engine, list[RoundRecord]]:
    """An engine and the list that its rounds are recorded in."""
    records: list[RoundRecord] = []
    options = {"cache_tokens": 1024} | options
    return Engine(decoder or tiny_decoder(), drafters, trace=records.append, **options), records


def run(machine: Engine, requests: Sequence[Request]) -> list[Answer]:
    """Answers in the order of the requests; the cache must be whole and empty afterwards."""
    answers = {r.id: Answer() for r in requests}
    for r in requests:
        machine.add(r)
    while machine.busy:
        for progress in machine.step():
            answer = answers[progress.request_id]
            answer.pieces += progress.pieces
            answer.tokens += [piece.token for piece in progress.pieces]
            answer.text += "".join(piece.text for piece in progress.pieces)
            answer.reason, answer.stats, answer.error = progress.finish_reason, progress.stats, progress.error
            answer.prompt_logprobs = progress.prompt_logprobs
        cache = machine.parts.cache
        cache.check_integrity([s.table for s in [*machine.scheduler.running, *machine.scheduler.waiting]])
    assert machine.parts.cache.free_pages == machine.parts.cache.pages
    return [answers[r.id] for r in requests]


def answer(machine: Engine, one: Request) -> Answer:
    return run(machine, [one])[0]


@cache
def _plain_engine() -> Engine:
    return engine(prefix_cache=False)[0]


def plain(one: Request, decoder: Decoder | None = None) -> Answer:
    """The same request with an empty draft."""
    bare = Request(
        **{name: getattr(one, name) for name in one.__slots__ if name not in ("id", "speculation")},
        id=f"p{next(_ids)}",
        speculation=Speculation(rule=one.speculation.rule),
    )
    return answer(engine(None, decoder)[0] if decoder else _plain_engine(), bare)
