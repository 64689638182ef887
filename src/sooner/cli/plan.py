"""`sooner plan`: whether drafting pays, before anything is deployed."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sooner.cli import options
from sooner.cli.bench import head, keep, load_model, note, whole_numbers
from sooner.errors import InputError
from sooner.types import SamplingParams

if TYPE_CHECKING:
    from sooner.llm import LLM


def plan(
    model: options.Model,
    draft: options.Draft = "suffix",
    prompts: Annotated[
        Path | None, typer.Option(help=".jsonl with prompt, messages or turns (Spec-Bench) a line [default: our own]")
    ] = None,
    per_category: Annotated[int | None, typer.Option(help="only the first N prompts of each category")] = None,
    concurrency: Annotated[str, typer.Option(help="requests in flight")] = "1,4,16",
    temperature: Annotated[float, typer.Option(help="0 is greedy")] = 0.0,
    seed: Annotated[int, typer.Option(help="of the sampling and of the intervals")] = 0,
    max_tokens: Annotated[int, typer.Option("--max-tokens", "-n", help="most tokens of an answer")] = 128,
    weights: options.Weights = "auto",
    threads: options.Threads = None,
    max_context: options.MaxContext = None,
    out: Annotated[Path | None, typer.Option("--out", help="write the result to this file")] = None,
    no_save: Annotated[bool, typer.Option("--no-save", help="keep no file")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Measure costs, answer the prompts once, and predict what drafting would bring at each load."""
    if not draft:
        raise InputError("plan needs a draft to judge; add --draft suffix")
    from sooner.bench.trace import record
    from sooner.bench.verdict import judge
    from sooner.bench.workloads import load_prompts, select

    loads = whole_numbers("--concurrency", concurrency)
    if min(loads) < 1:
        raise InputError(f"--concurrency is {concurrency}, must be at least 1")
    params = SamplingParams(temperature=temperature, seed=seed, max_tokens=max_tokens)
    chosen = select(load_prompts(prompts), [], per_category)
    llm = load_model(model, draft=draft, weights=weights, threads=threads, max_context=max_context, max_sequences=1)
    recorded = record(llm, chosen, params, note)
    kind = "greedy" if params.greedy else "sampled"
    costs = llm.engine.parts.planner.costs
    settings = {
        "model": model,
        "weights": weights,
        "draft": draft,
        "temperature": temperature,
        "max_tokens": max_tokens,
        "prompts": prompts.name if prompts else "ours",
        "per_category": per_category,
    }
    result = head(llm, "plan", settings, seed) | judge(costs, recorded, draft.split(","), kind, loads, seed)
    result |= {"costs": live_costs(llm), "worth": worth(llm)}
    keep(result, out, no_save)
    print(json.dumps(result) if as_json else text(result))


def live_costs(llm: LLM) -> dict[str, Any]:
    """The table, and what live rounds made of it: milliseconds of a pass by rows."""
    costs = llm.engine.parts.planner.costs
    return {
        "table": costs.table.as_dict(),
        "live_ms": {rows: 1e3 * costs.products(rows) for rows in costs.table.rows},
        "choosing_ms": {kind: 1e3 * level.value for kind, level in costs.choosing.items()},
        "drafters": {name: asdict(costs.drafter(name)) for name in costs.drafters},
    }


def worth(llm: LLM) -> list[dict[str, Any]]:
    """What was accepted in each cell, prior included."""
    return [
        {"drafter": name, "sampled": sampled, "cells": {key: asdict(cell) for key, cell in worth.cells.items()}}
        for (name, sampled), worth in llm.engine.parts.planner.worths.items()
    ]


def text(result: dict[str, Any]) -> str:
    from sooner.bench.tables import markdown

    rows = [
        [
            f"{cell['concurrency']}",
            cell["category"],
            f"{cell['prompts']}",
            f"{cell['plain_tok_s']:.1f}",
            f"{cell['speedup']:.2f}x",
            f"{cell['interval'][0]:.2f} to {cell['interval'][1]:.2f}" if cell["interval"] else "",
            f"{cell['end_to_end']:.2f}x",
            f"{cell['best_fixed']['drafter']} {cell['best_fixed']['tokens']}: {cell['best_fixed']['speedup']:.2f}x",
            f"{cell['tokens_per_round']:.2f}",
            f"{cell['break_even'][4]:.2f}",
        ]
        for cell in result["cells"]
    ]
    titles = ["in flight", "category", "prompts", "plain tokens/s", "auto", "95% interval", "with prefill"]
    titles += ["best fixed", "tokens a round", "break-even of 4"]
    return markdown(titles, rows) + "\n\n" + "\n".join(result["verdict"])
