"""`sooner plan`: whether drafting pays, before anything is deployed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sooner.cli import options
from sooner.cli.bench import head, keep, load_model, note, whole_numbers
from sooner.cli.what_if import explore, flags
from sooner.errors import InputError
from sooner.types import SamplingParams

if TYPE_CHECKING:
    from sooner.bench.workloads import Prompt
    from sooner.llm import LLM


def plan(
    model: options.OptionalModel = None,
    draft: options.Draft = "suffix",
    prompts: Annotated[
        Path | None, typer.Option(help=".jsonl with prompt, messages or turns (Spec-Bench) a line [default: our own]")
    ] = None,
    per_category: Annotated[int | None, typer.Option(help="only the first N prompts of each category")] = None,
    concurrency: Annotated[str, typer.Option(help="requests in flight")] = "1,4,16",
    plots: Annotated[Path | None, typer.Option(help="folder for plots as PNG (needs matplotlib)")] = None,
    what_if: Annotated[
        bool, typer.Option("--what-if", help="no model: what --alpha and --draft-cost would bring")
    ] = False,
    alpha: Annotated[
        str | None, typer.Option(help="acceptance rate, or one of each position; with --what-if [default: 0.7]")
    ] = None,
    draft_cost: Annotated[
        float | None, typer.Option(help="a draft step over a plain pass; with --what-if [default: 0]")
    ] = None,
    verification: Annotated[
        str | None,
        typer.Option(
            help="passes over 1,2,3... rows over a plain one, or a file of bench cost or plan; with --what-if [1]"
        ),
    ] = None,
    emit: Annotated[str | None, typer.Option(help="no model: flags for vllm or llama.cpp, from --measured")] = None,
    measured: Annotated[Path | None, typer.Option(help="costs and acceptance measured there; docs/plan.md")] = None,
    temperature: Annotated[float, typer.Option(help="0 is greedy")] = 0.0,
    seed: Annotated[int, typer.Option(help="of the sampling and of the intervals")] = 0,
    max_tokens: Annotated[int, typer.Option("--max-tokens", "-n", help="most tokens of an answer")] = 128,
    weights: options.Weights = "auto",
    activations: options.Activations = "float32",
    threads: options.Threads = None,
    max_context: options.MaxContext = None,
    out: Annotated[Path | None, typer.Option("--out", help="write the result to this file")] = None,
    no_save: Annotated[bool, typer.Option("--no-save", help="keep no file")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Measure costs, answer the prompts once, and predict what drafting would bring at each load."""
    refuse_idle(
        (model if what_if or emit else None, "MODEL", "is not looked at here; leave it out"),
        (emit if what_if else None, "--emit", "does not go with --what-if"),
        (measured if not emit else None, "--measured", "needs --emit"),
        *(
            (value if not what_if else None, name, "needs --what-if")
            for name, value in (("--alpha", alpha), ("--draft-cost", draft_cost), ("--verification", verification))
        ),
    )
    if what_if:
        loads = whole_numbers("--concurrency", concurrency)
        print(explore(alpha or "0.7", draft_cost or 0.0, verification or "1", loads, as_json))
        return
    if emit:
        print(flags(emit, measured))
        return
    if model is None:
        raise InputError("plan needs a model; for example sooner plan smollm2, or use --what-if without one")
    if not draft:
        raise InputError("plan needs a draft to judge; add --draft suffix")
    from sooner.bench.workloads import load_prompts, select

    loads = whole_numbers("--concurrency", concurrency)
    if min(loads) < 1:
        raise InputError(f"--concurrency is {concurrency}, must be at least 1")
    params = SamplingParams(temperature=temperature, seed=seed, max_tokens=max_tokens)
    chosen = select(load_prompts(prompts), [], per_category)
    machine = {"weights": weights, "activations": activations, "threads": threads}
    llm = load_model(model, draft=draft, max_context=max_context, max_sequences=1, **machine)
    settings = {
        "model": model,
        "weights": weights,
        "activations": activations,
        "draft": draft,
        "temperature": temperature,
        "max_tokens": max_tokens,
        "prompts": prompts.name if prompts else "ours",
        "per_category": per_category,
    }
    result = head(llm, "plan", settings, seed) | foretell(llm, chosen, params, loads, seed)
    keep(result, out, no_save)
    if plots:
        from sooner.bench.plan_plots import draw_plan

        for path in draw_plan(result, plots):
            note(f"wrote {path}")
    print(json.dumps(result) if as_json else text(result))


def foretell(
    llm: LLM, prompts: Sequence[Prompt], params: SamplingParams, loads: Sequence[int], seed: int
) -> dict[str, Any]:
    """Answers the prompts once and plays the answers again at each load. `seed` is that of the intervals."""
    from sooner.bench.trace import record, replay_of
    from sooner.bench.verdict import footprint, judge
    from sooner.engine.plan_file import contents

    recorded, parts, names = record(llm, prompts, params, note), llm.engine.parts, llm.speculation.drafters
    table = parts.planner.costs.table
    if table.noisy:
        note(
            f"do not trust these figures: passes timed to learn what they cost took {table.spread:.0%} longer "
            "than the fastest of their kind; run this again when nothing else uses the machine"
        )
    drafters = {name: parts.drafters[name] for name in names}
    return {
        **judge(replay_of(llm, params), recorded, names, loads, seed),
        "costs": live_costs(llm),
        "start": contents(llm.decoder, parts.planner, names),
        "memory": footprint(drafters, parts.cache.token_bytes, llm.config.context),
    }


def refuse_idle(*given: tuple[object, str, str]) -> None:
    """Raises InputError for the first option that is given where nothing would look at it."""
    for value, name, why in given:
        if value is not None:
            raise InputError(f"{name} {why}")


def live_costs(llm: LLM) -> dict[str, Any]:
    """What live rounds made of the table: milliseconds of a pass by rows."""
    costs = llm.engine.parts.planner.costs
    return {
        "live_ms": {rows: 1e3 * costs.products(rows) for rows in costs.table.rows},
        "choosing_ms": {kind: 1e3 * level.value for kind, level in costs.choosing.items()},
        "drafters": {name: asdict(costs.drafter(name)) for name in costs.drafters},
    }


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
            f"{cell['foresight']:.2f}x",
            f"{cell['tokens_per_round']:.2f}",
            f"{cell['break_even'][4]:.2f}",
        ]
        for cell in result["cells"]
    ]
    titles = ["in flight", "category", "prompts", "plain tokens/s", "auto", "95% interval", "with prefill"]
    titles += ["best fixed", "foresight", "tokens a round", "break-even of 4"]
    parts = [markdown(titles, rows), theory_text(result["theory"]), memory_text(result), "\n".join(result["verdict"])]
    return "\n\n".join(part for part in parts if part)


def theory_text(theory: list[dict[str, Any]]) -> str:
    """One request in flight at each drafter's best fixed length: what one acceptance rate promises, and what came."""
    from sooner.bench.tables import markdown

    rows = [
        [
            f"{one['drafter']} {one['tokens']}",
            f"{one['alpha']:.2f}",
            f"{one['silent']:.0%}",
            f"{one['expected_tokens']:.2f}",
            f"{one['varying_tokens']:.2f}",
            f"{one['measured_tokens']:.2f}",
            f"{one['ceiling']:.2f}",
            f"{one['speedup']:.2f}x",
            f"{one['measured_speedup']:.2f}x",
            f"{one['best_length']}",
            f"{one['operations']:.2f}",
        ]
        for one in theory
        if "alpha" in one
    ]
    titles = ["theory, 1 in flight", "alpha", "silent", "tokens a round by alpha", "by position", "replayed", "ceiling"]
    titles += ["speedup by alpha", "replayed", "best length by alpha", "rows a token"]
    why = "A round proposes nothing at the silent places and is as long as its weakest position lets it be, so one mean"
    return f"{markdown(titles, rows)}\n{why} alpha promises more." if rows else ""


def memory_text(result: dict[str, Any]) -> str:
    heavy = [one for one in result["memory"] if one["weight_bytes"] or one["token_bytes"]]
    return "\n".join(
        f"{one['drafter']} takes {one['weight_bytes'] / 1e6:.0f} MB of weights and {one['token_bytes'] / 1e3:.1f} kB a "
        f"token: of 16 full contexts {one['contexts_of_16']} fit in the same memory."
        for one in heavy
    )
