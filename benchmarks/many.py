"""What serving many sequences costs beside the target's passes, and what a shared prefix saves.

    python -m benchmarks.many --save

Within one process and in turns: engine steps of 8 and 16 sequences without drafts, as without a drafter and as with
one that the policy grants nothing; and passes of as many rows, which `bench cost` would call their cost. Then the time
to the first token of a prompt of 1,000 tokens, new and with all but its last tokens cached.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from benchmarks import saving
from sooner.bench.cost import Bench, filler
from sooner.cache.paged import Table
from sooner.draft.protocol import Ask, Target
from sooner.engine.stats import Stats
from sooner.llm import LLM
from sooner.types import Draft, Ledger, SamplingParams

CONTEXT = 128
STEPS = 12  # of each kind before its turn ends
PREFIX = 1000


class Silent:
    """A drafter that never has anything to propose, and says so beforehand."""

    name = "silent"
    samples = False

    def __init__(self, target: Target) -> None:
        pass

    def estimate(self, ask: Ask) -> tuple[float, ...]:  # noqa: ARG002
        return ()

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [Draft.chain(()) for _ in asks]

    def commit(self, key: int, ledger: Ledger) -> None:
        pass

    def cached(self, key: int) -> int:  # noqa: ARG002
        return 0

    def forget(self, key: int) -> None:
        pass


def steps(llm: LLM, texts: Sequence[list[int]], speculative: bool) -> tuple[list[float], Stats]:
    """Seconds of each step in which all sequences decode."""
    params = SamplingParams(temperature=0.8, top_p=0.95, seed=1, max_tokens=STEPS + len(texts) + 2, ignore_eos=True)
    for text in texts:
        for request in llm.requests(text, params, speculative):
            llm.engine.add(request)
    waiting, stats, taken = set(llm.engine.in_flight), Stats(), list[float]()
    started: set[str] = set()
    while waiting:
        full = started == waiting and len(waiting) == len(texts)
        begin = time.perf_counter()
        news = llm.engine.step()
        if full:
            taken.append(time.perf_counter() - begin)
        started |= {one.request_id for one in news if one.pieces}
        for one in news:
            if one.finish_reason:
                waiting.discard(one.request_id)
                stats.merge(one.stats)
    return taken[:STEPS], stats


def in_flight(llm: LLM, bench: Bench, count: int, repeats: int) -> dict[str, Any]:
    """One row for each of `count` sequences: milliseconds of a step and of a pass, and the shares of the step."""
    texts = [bench.text[i : i + CONTEXT - STEPS] for i in range(0, 16 * count, 16)]
    table, passes, without, silent = Table(), list[float](), list[list[float]](), list[list[float]]()
    bench.fill(table, CONTEXT)
    stats = Stats()
    for number in range(repeats):
        passes += [1e3 * bench.pass_seconds(table, count) for _ in range(STEPS)]
        for speculative in (False, True) if number % 2 else (True, False):
            taken, one = steps(llm, texts, speculative)
            (silent if speculative else without).append([1e3 * seconds for seconds in taken])
            stats.merge(one)
    step_ms, zero_ms = (median(ms for turn in turns for ms in turn) for turns in (without, silent))
    bench.llm.engine.parts.cache.release(table)
    return {
        "sequences": count,
        "pass_ms": round(median(passes), 3),
        "step_ms": round(step_ms, 3),
        "share_of_cost_curve": round(median(passes) / step_ms, 4),
        "outside_target_share": round(1 - stats.target_s / stats.decode_s, 4),
        "planning_and_draft_share": round(stats.draft_s / stats.decode_s, 4),
        "verify_share": round(stats.verify_s / stats.decode_s, 4),
        "commit_share": round(stats.commit_s / stats.decode_s, 4),
        "step_ms_all_grants_zero": round(zero_ms, 3),
        "cost_of_grants_of_zero": round(median(median(b) / median(a) for a, b in zip(without, silent)) - 1, 4),
    }


def prefixes(llm: LLM, text: Sequence[int], repeats: int) -> dict[str, Any]:
    """Seconds to the first token of PREFIX shared tokens and 8 more, when they come first and when they come again."""
    pairs = [
        (first_token(llm, [*shared, *text[:8]]), first_token(llm, [*shared, *text[8:16]]))
        for shared in ([*text[i : i + PREFIX]] for i in range(1, 1 + 8 * repeats, 8))
    ]
    return {
        "prefix_tokens": PREFIX,
        "first_token_s_uncached": [round(new, 4) for new, _ in pairs],
        "first_token_s_cached": [round(again, 4) for _, again in pairs],
        "share": round(median(again / new for new, again in pairs), 4),
    }


def first_token(llm: LLM, prompt: list[int]) -> float:
    begin = time.perf_counter()
    events: Iterator[Any] = llm.stream(prompt, SamplingParams(temperature=0.0, max_tokens=1))
    next(events)
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--weights", default="auto")
    parser.add_argument("--repeats", type=int, default=12)
    parser.add_argument("--save", action="store_true", help="write the result under results/")
    options = parser.parse_args()
    llm = LLM(options.model, weights=options.weights, draft="benchmarks.many:Silent", max_sequences=17)
    bench = Bench(llm, filler(llm, 4 * PREFIX))
    figures = {
        "in_flight": [in_flight(llm, bench, count, options.repeats) for count in (1, 8, 16)],
        "prefix": prefixes(llm, bench.text, 5),
    }
    print(json.dumps(figures))
    saving.save("many", options, figures, llm.decoder.kernels)


if __name__ == "__main__":
    main()
