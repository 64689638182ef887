"""Many requests at once: throughput and latency, with and without drafts, by how many clients ask at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sooner.bench.turns import Side, play_pair, warm_up
from sooner.bench.workloads import Prompt
from sooner.engine.engine import Engine
from sooner.engine.stats import Stats
from sooner.errors import InputError
from sooner.llm import LLM
from sooner.types import SamplingParams


def measure_concurrency(
    llm: LLM, prompts: Sequence[Prompt], params: SamplingParams, levels: Sequence[int], progress: Callable[[str], None]
) -> dict[str, Any]:
    """The result of `sooner bench speed --concurrency`: at each level that many clients ask without a pause."""
    if min(levels) < 1:
        raise InputError(f"--concurrency is {min(levels)}, must be at least 1")
    ids, plain = [prompt.token_ids(llm.tokenizer) for prompt in prompts], llm.plain_engine()
    warm_up(llm, plain, ids)
    return {"levels": [measure_level(llm, plain, ids, params, level, progress) for level in levels]}


def measure_level(
    llm: LLM,
    plain_engine: Engine,
    ids: Sequence[list[int]],
    params: SamplingParams,
    level: int,
    progress: Callable[[str], None],
) -> dict[str, Any]:
    """All prompts, each answered once both ways."""
    plain, drafted = play_pair(llm, plain_engine, ids, params, level)
    reports = {"plain": report(plain), "speculative": report(drafted)}
    rates = [one["tok_s"] for one in reports.values()]
    progress(f"{level} at once: plain {rates[0]:.1f}, speculative {rates[1]:.1f} tokens/s")
    same = [one.token_ids for one in plain.done] == [one.token_ids for one in drafted.done]
    return {"concurrency": level, **reports, "identical": same}


def report(side: Side) -> dict[str, Any]:
    """seconds: from the first request to the last answer, on its own clock. full_tok_s: while every client's answer was
    under way."""
    latency, stats = [one.total_s for one in side.done], Stats()
    for one in side.done:
        stats.merge(one.stats)
    return {
        "tok_s": sum(len(one.token_ids) for one in side.done) / side.seconds,
        "full_tok_s": side.full_tokens / side.full_s if side.full_s else None,
        "latency_median_s": float(np.median(latency)),
        "latency_p95_s": float(np.quantile(latency, 0.95)),
        "first_token_median_s": float(np.median([one.first_s for one in side.done])),
        "seconds": side.seconds,
        "latency_s": latency,
        "first_token_s": [one.first_s for one in side.done],
        "tokens": [len(one.token_ids) for one in side.done],
        "stats": stats.as_dict(),
    }
