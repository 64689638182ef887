"""What does `auto` lose where drafts do not pay, and how far is it from the best fixed setting in hindsight?

    python -m benchmarks.policy slower --save
    python -m benchmarks.policy useless --save
    python -m benchmarks.policy hindsight --save

slower: times plain speed by category, load and temperature, `suffix` and `ngram:smollm2` against plain in turns; of
several pairs the median.

useless: random tokens, and the target itself as its draft; auto against plain in turns.

hindsight: recorded answers, played again under the measured costs for every fixed length of every drafter, by category,
load and temperature, and with foresight, which drafts what will be accepted and no more; the cells furthest from their
best fixed setting are then measured for real.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import saving
from sooner.bench.speed import measure_speed
from sooner.bench.trace import record, replay_of
from sooner.bench.turns import Side, filling, play_pair, warm_up
from sooner.bench.verdict import judge
from sooner.bench.workloads import Prompt, load_prompts, select
from sooner.draft.protocol import Ask, Target
from sooner.llm import LLM
from sooner.types import Draft, DraftTokens, Ledger, SamplingParams

USELESS = ("benchmarks.policy:Useless", "model:self/30")
TEMPERATURES = (0.0, 0.8)
LOADS = (1, 4, 16)
DRAFT = "suffix,ngram:smollm2"
NEVER = 0.98  # times plain speed, that no cell should fall below
FILLED = 2  # how often the places in flight are filled
SPOTS = 2  # cells that are measured for real


class Useless:
    """Random tokens, as many as are wanted."""

    name = "useless"
    samples = False

    def __init__(self, target: Target) -> None:
        self._vocabulary, self._random = target.vocabulary, random.Random(0)

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [Draft.chain([self._random.randrange(self._vocabulary) for _ in range(ask.limit)]) for ask in asks]

    def commit(self, key: int, ledger: Ledger) -> None:
        """Nothing is kept."""

    def cached(self, key: int) -> int:  # noqa: ARG002
        return 0

    def forget(self, key: int) -> None:
        """Nothing is kept."""


def chosen(options: argparse.Namespace) -> list[Prompt]:
    names = options.categories.split(",") if options.categories else []
    return select(load_prompts(options.prompts), names, options.per_category)


def params_at(temperature: float, tokens: int) -> SamplingParams:
    return SamplingParams(temperature=temperature, seed=1, max_tokens=tokens)


def slower(options: argparse.Namespace) -> dict[str, Any]:
    """speedup: while every place decodes; end_to_end: of all the time, prompts and the emptying at the end included.

    Both are medians of the pairs: runs of a second or two scatter by up to 5%, plain against plain too.
    """
    llm = LLM(options.model, draft=DRAFT, weights=options.weights, max_sequences=max(LOADS), prefix_cache=False)
    plain_engine, by = llm.plain_engine(), dict[str, list[list[int]]]()
    for prompt in chosen(options):
        by.setdefault(prompt.category, []).append(prompt.token_ids(llm.tokenizer))
    warm_up(llm, plain_engine, next(iter(by.values())))
    cells = list[dict[str, Any]]()
    for temperature, load, (category, ids) in product(TEMPERATURES, LOADS, by.items()):
        many, params = filling(ids, load, FILLED), params_at(temperature, options.tokens)
        pairs = [play_pair(llm, plain_engine, many, params, load, n % 2 == 0) for n in range(options.pairs)]
        ratios = [full_rate(drafted) / full_rate(plain) for plain, drafted in pairs]
        cells.append(
            {
                "category": category,
                "concurrency": load,
                "temperature": temperature,
                "speedup": median(ratios),
                "pairs": ratios,
                "end_to_end": median(plain.seconds / drafted.seconds for plain, drafted in pairs),
                "full_s": sum(plain.full_s for plain, _ in pairs),
            }
        )
        note(f"{category}, {load} at temperature {temperature}: {cells[-1]['speedup']:.3f}")
    cells.sort(key=lambda cell: float(cell["speedup"]))
    return {"draft": DRAFT, "worst": cells[0], "below": sum(cell["speedup"] < NEVER for cell in cells), "cells": cells}


def full_rate(side: Side) -> float:
    return side.full_tokens / side.full_s


def useless(options: argparse.Namespace) -> dict[str, Any]:
    """Times plain speed with each useless drafter, over all prompts together."""
    prompts = [replace(prompt, category="all") for prompt in chosen(options)]
    found = {}
    for draft in USELESS:
        llm = LLM(options.model, draft=draft, weights=options.weights, max_sequences=1)
        speed = measure_speed(llm, prompts, params_at(0.0, options.tokens), options.pairs, 0, note)
        found[draft] = {name: speed["categories"]["all"][name] for name in ("speedup", "speedup_interval")}
    return found


def hindsight(options: argparse.Namespace) -> dict[str, Any]:
    """Of each cell auto's speedup, the best fixed one's, and their ratio; the worst ones beside real runs."""
    prompts, draft = chosen(options), "suffix,ngram"
    cells = []
    for temperature in TEMPERATURES:
        llm, params = LLM(options.model, draft=draft, weights=options.weights), params_at(temperature, options.tokens)
        recorded = record(llm, prompts, params, note)
        for cell in judge(replay_of(llm, params), recorded, draft.split(","), LOADS, seed=0)["cells"]:
            kept = {name: cell[name] for name in ("category", "concurrency", "speedup", "best_fixed", "foresight")}
            ratio = cell["speedup"] / max(cell["best_fixed"]["speedup"], 1.0)
            cells.append(kept | {"temperature": temperature, "of_best": ratio})
    cells.sort(key=lambda cell: float(cell["of_best"]))
    spots = [cell for cell in cells if cell["concurrency"] == 1][:SPOTS]
    measured = [measured_spot(options, cell, prompts, draft) for cell in spots]
    worst = {"of_best": cells[0]["of_best"], "speedup": min(cell["speedup"] for cell in cells)}
    return {"worst": worst, "spots": measured, "cells": cells}


def measured_spot(
    options: argparse.Namespace, cell: dict[str, Any], prompts: Sequence[Prompt], draft: str
) -> dict[str, Any]:
    """Times plain speed in a real run: auto, and the best fixed setting of the replay."""
    best, mine = cell["best_fixed"], [prompt for prompt in prompts if cell["category"] in (prompt.category, "all")]
    one, found = [replace(prompt, category="all") for prompt in mine], {}
    ways: dict[str, tuple[str, DraftTokens]] = {"auto": (draft, "auto"), "fixed": (best["drafter"], best["tokens"])}
    for name, (drafter, tokens) in ways.items():
        llm = LLM(options.model, draft=drafter, draft_tokens=tokens, weights=options.weights, max_sequences=1)
        speed = measure_speed(llm, one, params_at(cell["temperature"], options.tokens), options.pairs, 0, note)
        found[name] = speed["categories"]["all"]["speedup"]
    return {"category": cell["category"], "temperature": cell["temperature"], "replayed": cell["of_best"], **found}


WHAT = {"slower": slower, "useless": useless, "hindsight": hindsight}


def note(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=tuple(WHAT))
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--weights", default="auto")
    parser.add_argument("--prompts", type=Path, help="as of sooner bench speed; our own where it is left out")
    parser.add_argument("--categories", default="", help="all where it is left out")
    parser.add_argument("--per-category", type=int, help="all where it is left out")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--save", action="store_true", help="write the result under results/")
    options = parser.parse_args()
    found = WHAT[options.what](options)
    print(json.dumps(found, indent=1))
    saving.save("plan", options, found)


if __name__ == "__main__":
    main()
