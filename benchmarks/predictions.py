"""Does `sooner plan` predict what is then measured? The predictions are on disk before the measurement begins.

    python -m benchmarks.predictions --save
    python -m benchmarks.predictions --prompts spec_bench.jsonl --categories qa,translation --per-category 20 --save

Half of each category's prompts are planned with, the other half is measured, at every load and temperature, plain and
drafted in turns. Without --save both files go to a scratch folder. What prompts of one kind differ by is part of the
difference: with few of them a category that copies much is hard to predict, and the interval says so.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import saving
from sooner.bench import results
from sooner.bench.concurrency import measure_level
from sooner.bench.speed import measure_speed
from sooner.bench.trace import record, replay_of
from sooner.bench.turns import filling
from sooner.bench.verdict import ALL, judge
from sooner.bench.workloads import Prompt, load_prompts, select
from sooner.llm import LLM
from sooner.types import SamplingParams

CLOSE = 0.1
FILLED = 4  # how often the places in flight are filled
Cell = dict[str, Any]


def halves(prompts: Sequence[Prompt]) -> tuple[list[Prompt], list[Prompt]]:
    """Every other prompt of each category."""
    groups: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        groups.setdefault(prompt.category, []).append(prompt)
    return [p for group in groups.values() for p in group[::2]], [p for group in groups.values() for p in group[1::2]]


def predict(llm: LLM, prompts: Sequence[Prompt], params: SamplingParams, loads: Sequence[int]) -> list[Cell]:
    recorded = record(llm, prompts, params, note)
    cells = judge(replay_of(llm, params), recorded, llm.speculation.drafters, loads, seed=0)["cells"]
    fields = ("category", "concurrency", "speedup", "interval")
    return [
        {name: cell[name] for name in fields} | {"temperature": params.temperature}
        for cell in cells
        if cell["category"] != ALL
    ]


def measure(
    llm: LLM, prompts: Sequence[Prompt], params: SamplingParams, loads: Sequence[int], pairs: int
) -> dict[tuple[str, int], float]:
    """The speedup by category and load, as `bench speed` has it: in decoding for one, of all the time for several."""
    found, plain = {}, llm.plain_engine()
    for category in dict.fromkeys(prompt.category for prompt in prompts):
        mine = [prompt for prompt in prompts if prompt.category == category]
        for load in loads:
            if load == 1:
                speed = measure_speed(llm, mine, params, pairs, 0, note)["categories"][category]["speedup"]
            else:
                many = [prompt.token_ids(llm.tokenizer) for prompt in filling(mine, load, FILLED)]
                level = measure_level(llm, plain, many, params, load, note)
                speed = level["speculative"]["tok_s"] / level["plain"]["tok_s"]
            found[category, load] = speed
    return found


def compared(cell: Cell, measured: float) -> Cell:
    low, high = cell["interval"] or (0.0, 0.0)
    close, inside = abs(cell["speedup"] / measured - 1.0) <= CLOSE, low <= measured <= high
    return cell | {"measured": measured, "close": close, "inside": inside}


def note(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def save(head: Mapping[str, Any], cells: Sequence[Cell], root: Path, **more: Any) -> Path:
    path = results.save({**head, "cells": list(cells), **more}, None, root)
    note(f"wrote {path}")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--weights", default="auto")
    parser.add_argument("--draft", default="suffix,ngram")
    parser.add_argument("--prompts", type=Path, help="as of sooner bench speed; our own where it is left out")
    parser.add_argument("--categories", default="chat,code,edit,summary")
    parser.add_argument("--per-category", type=int)
    parser.add_argument("--loads", default="1,4,16")
    parser.add_argument("--temperatures", default="0,0.8")
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--pairs", type=int, default=1, help="times that each prompt is measured, one in flight")
    parser.add_argument("--save", action="store_true", help="write under results/")
    options = parser.parse_args()
    loads = [int(load) for load in options.loads.split(",")]
    kinds = [
        SamplingParams(temperature=float(t), seed=1, max_tokens=options.tokens) for t in options.temperatures.split(",")
    ]
    seen, unseen = halves(select(load_prompts(options.prompts), options.categories.split(","), options.per_category))
    how: dict[str, Any] = {"draft": options.draft, "weights": options.weights, "prefix_cache": False}
    llm = LLM(options.model, max_sequences=1, **how)
    settings = saving.settings_of(options)
    settings["prompts"] = settings["prompts"] or "ours"
    head = saving.envelope("plan", settings, llm.decoder.kernels)
    root = saving.ROOT if options.save else Path(tempfile.mkdtemp())
    predicted = [cell for params in kinds for cell in predict(llm, seen, params, loads)]
    first = save(head, predicted, root, what="predictions", prompts=[prompt.id for prompt in seen])
    llm = LLM(options.model, max_sequences=max(loads), **how)
    measured = {params.temperature: measure(llm, unseen, params, loads, options.pairs) for params in kinds}
    cells = [compared(c, measured[c["temperature"]][c["category"], c["concurrency"]]) for c in predicted]
    head = saving.envelope("plan", settings, llm.decoder.kernels)
    save(head, cells, root, what="measured", predictions=first.name, prompts=[prompt.id for prompt in unseen])
    print(json.dumps(cells, indent=1))
    close, inside = (sum(cell[name] for cell in cells) for name in ("close", "inside"))
    print(f"{close} of {len(cells)} cells within {CLOSE:.0%}, {inside} of {len(cells)} inside their 95% interval")


if __name__ == "__main__":
    main()
