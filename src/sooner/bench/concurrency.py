"""Many requests at once: throughput and latency, with and without drafts, by how many clients ask at a time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sooner.bench.workloads import Prompt
from sooner.engine.stats import Stats
from sooner.errors import InputError
from sooner.llm import LLM
from sooner.types import SamplingParams


@dataclass(slots=True)
class Asked:
    """One request as its client saw it. Seconds count from the moment when it was sent."""

    prompt: int
    sent: float
    first_s: float = 0.0
    total_s: float = 0.0
    token_ids: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Run:
    """All prompts, each answered once. seconds: from the first request to the last answer."""

    seconds: float
    asked: list[Asked]
    stats: Stats

    def report(self) -> dict[str, Any]:
        latency = [one.total_s for one in self.asked]
        return {
            "tok_s": sum(len(one.token_ids) for one in self.asked) / self.seconds,
            "latency_median_s": float(np.median(latency)),
            "latency_p95_s": float(np.quantile(latency, 0.95)),
            "first_token_median_s": float(np.median([one.first_s for one in self.asked])),
            "seconds": self.seconds,
            "latency_s": latency,
            "first_token_s": [one.first_s for one in self.asked],
            "tokens": [len(one.token_ids) for one in self.asked],
            "stats": self.stats.as_dict(),
        }


def measure_concurrency(
    llm: LLM, prompts: Sequence[Prompt], params: SamplingParams, levels: Sequence[int], progress: Callable[[str], None]
) -> dict[str, Any]:
    """The result of `sooner bench speed --concurrency`: at each level that many clients ask without a pause."""
    if min(levels) < 1:
        raise InputError(f"--concurrency is {min(levels)}, must be at least 1")
    ids = [prompt.token_ids(llm.tokenizer) for prompt in prompts]
    play(llm, ids[:2], SamplingParams(temperature=0.0, max_tokens=8), 2, True)  # the first passes are slow
    table = []
    for number, level in enumerate(levels):
        order = (False, True) if number % 2 == 0 else (True, False)
        runs = {speculative: play(llm, ids, params, level, speculative) for speculative in order}
        plain, drafted = runs[False].report(), runs[True].report()
        same = [one.token_ids for one in runs[False].asked] == [one.token_ids for one in runs[True].asked]
        table.append({"concurrency": level, "plain": plain, "speculative": drafted, "identical": same})
        progress(f"{level} at once: plain {plain['tok_s']:.1f}, speculative {drafted['tok_s']:.1f} tokens/s")
    return {"levels": table}


def play(llm: LLM, prompts: Sequence[list[int]], params: SamplingParams, level: int, speculative: bool) -> Run:
    """`level` clients in a closed loop: each sends the next prompt as soon as it has its answer."""
    waiting, flying, done = deque(range(len(prompts))), dict[str, Asked](), list[Asked]()
    stats, start = Stats(), time.perf_counter()
    while waiting or flying:
        while waiting and len(flying) < level:
            number = waiting.popleft()
            [request] = llm.requests(prompts[number], params, speculative)
            llm.engine.add(request)
            flying[request.id] = Asked(number, time.perf_counter())
        for news in llm.engine.step():
            one, now = flying[news.request_id], time.perf_counter()
            if news.error or news.stats.drafter_error:
                raise InputError(news.error or news.stats.drafter_error)
            one.first_s = one.first_s if one.token_ids or not news.pieces else now - one.sent
            one.token_ids += [piece.token for piece in news.pieces]
            if news.finish_reason:
                one.total_s = now - one.sent
                stats.merge(news.stats)
                done.append(flying.pop(news.request_id))
    return Run(time.perf_counter() - start, sorted(done, key=lambda one: one.prompt), stats)
