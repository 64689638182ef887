"""`sooner bench`: what passes cost, how fast answers come, and the report of both."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from sooner.cli import options
from sooner.errors import InputError
from sooner.types import Rule, SamplingParams

if TYPE_CHECKING:
    from sooner.llm import LLM

app = typer.Typer(no_args_is_help=True, help="Measure this machine and this model; results are kept under results/.")

Out = Annotated[Path | None, typer.Option("--out", help="write the result to this file instead of under results/")]
NoSave = Annotated[bool, typer.Option("--no-save", help="keep no file")]
Results = Annotated[Path, typer.Option("--results", help="folder of the results")]


@app.command()
def cost(
    model: options.Model,
    draft: options.Draft = None,
    weights: options.Weights = "auto",
    activations: options.Activations = "float32",
    kernels: options.Kernels = "auto",
    threads: options.Threads = None,
    rows: Annotated[str, typer.Option(help="rows of a target pass")] = "1,2,3,4,6,8,12,16,24,32,64",
    context: Annotated[str, typer.Option(help="keys in the cache")] = "128,1024,4096",
    repeats: Annotated[int, typer.Option(help="times that every pass is measured")] = 15,
    out: Out = None,
    no_save: NoSave = False,
    as_json: options.AsJson = False,
) -> None:
    """Time target passes and drafters against what bandwidth and arithmetic allow."""
    from sooner.bench import tables
    from sooner.bench.cost import Plan, measure_cost

    plan = Plan(whole_numbers("--rows", rows), whole_numbers("--context", context), repeats)
    machine = {"weights": weights, "activations": activations, "kernels": kernels, "threads": threads}
    llm = load_model(model, draft=draft, max_context=plan.room, max_sequences=1, **machine)
    settings = {
        "model": model,
        "weights": weights,
        "activations": activations,
        "kernels": kernels,
        "draft": draft,
        "rows": plan.rows,
        "contexts": plan.contexts,
    }
    result = head(llm, "cost", settings, seed=0) | measure_cost(llm, plan, note)
    keep(result, out, no_save)
    if as_json:
        print(json.dumps(result))
        return
    print("\n\n".join([tables.cost_facts(result), tables.cost_table(result)]))
    if result["drafters"]:
        print("\n" + tables.drafter_table(result))


@app.command()
def speed(
    model: options.Model,
    draft: options.Draft = None,
    draft_tokens: options.DraftTokens = "auto",
    draft_branches: options.DraftBranches = 1,
    verify: options.Verify = "auto",
    prompts: Annotated[
        Path | None, typer.Option(help=".jsonl with prompt, messages or turns (Spec-Bench) a line [default: our own]")
    ] = None,
    categories: Annotated[str | None, typer.Option(help="only these, comma-separated")] = None,
    per_category: Annotated[int | None, typer.Option(help="only the first N prompts of each category")] = None,
    temperature: Annotated[float, typer.Option(help="0 is greedy")] = 0.0,
    seed: Annotated[int, typer.Option(help="of the sampling and of the bootstrap")] = 0,
    max_tokens: Annotated[int, typer.Option("--max-tokens", "-n", help="most tokens of an answer")] = 128,
    pairs: Annotated[int, typer.Option(help="times that every prompt is answered both ways")] = 1,
    concurrency: Annotated[
        str | None, typer.Option(help="measure throughput with so many requests at once instead; for example 1,4,8,16")
    ] = None,
    weights: options.Weights = "auto",
    activations: options.Activations = "float32",
    kernels: options.Kernels = "auto",
    threads: options.Threads = None,
    max_context: options.MaxContext = None,
    out: Out = None,
    no_save: NoSave = False,
    as_json: options.AsJson = False,
) -> None:
    """Answer prompts plainly and speculatively, round by round in turns, and compare speed and tokens."""
    if not draft:
        raise InputError("bench speed compares with plain decoding and needs a draft; add --draft suffix")
    from sooner.bench import tables
    from sooner.bench.concurrency import measure_concurrency
    from sooner.bench.speed import measure_speed
    from sooner.bench.workloads import load_prompts, select

    params = SamplingParams(temperature=temperature, seed=seed, max_tokens=max_tokens)
    levels = whole_numbers("--concurrency", concurrency) if concurrency else ()
    chosen = select(load_prompts(prompts), categories.split(",") if categories else [], per_category)
    llm = load_model(
        model,
        draft=draft,
        draft_tokens=options.draft_tokens(draft_tokens),
        draft_branches=draft_branches,
        verify=cast(Rule, verify),
        weights=weights,
        activations=activations,
        kernels=kernels,
        threads=threads,
        max_context=max_context,
        max_sequences=max(levels, default=1),
        prefix_cache=False,  # a prompt that is answered again would not be read again
    )
    settings = {
        "model": model,
        "weights": weights,
        "activations": activations,
        "kernels": kernels,
        "draft": draft,
        "draft_tokens": options.draft_tokens(draft_tokens),
        "draft_branches": draft_branches,
        "verify": verify,
        "temperature": temperature,
        "max_tokens": max_tokens,
        "prompts": prompts.name if prompts else "ours",
        "categories": categories,
        "per_category": per_category,
    }
    if levels:
        result = head(llm, "concurrency", settings, seed) | measure_concurrency(llm, chosen, params, levels, note)
        keep(result, out, no_save)
        print(json.dumps(result) if as_json else tables.concurrency_table(result))
        return
    result = head(llm, "speed", settings, seed) | measure_speed(llm, chosen, params, pairs, seed, note)
    if result["divergences"]:
        no_save = True  # a run that lost the target's tokens is no evidence of speed
    keep(result, out, no_save)
    print(json.dumps(result) if as_json else tables.speed_table(result))
    for line in result["divergences"]:
        note(f"sooner: {line}")
    if result["divergences"]:
        raise typer.Exit(1)


@app.command()
def report(
    results: Results = Path("results"),
    update_readme: Annotated[
        bool, typer.Option("--update-readme", help="renew README.md and the lab from them")
    ] = False,
) -> None:
    """Render tables and plots from results/, and what README.md shows of them."""
    from sooner.bench import report as reports

    for path in reports.write_reports(results):
        note(f"wrote {path} and its plots")
        print(path.read_text(encoding="utf-8"))
    if update_readme:
        reports.update_readme(Path("README.md"), results)
        note(f"renewed README.md and {lab_results(results)}")


def lab_results(root: Path) -> Path:
    """Writes what the lab's page shows of the results."""
    from sooner.bench.report import for_the_lab
    from sooner.lab import results as shown

    shown.RESULTS.write_text(shown.render(shown.summarise(*for_the_lab(root), root)), encoding="utf-8")
    return shown.RESULTS


def whole_numbers(name: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError as error:
        raise InputError(f"{name} is {text!r}, must be whole numbers with commas between; for example 1,2,4") from error


def load_model(model: str, **options: Any) -> LLM:
    from sooner.llm import LLM

    note(f"loading {model}")
    return LLM(model, **options)


def head(llm: LLM, suite: str, settings: dict[str, Any], seed: int) -> dict[str, Any]:
    from sooner.bench import machine
    from sooner.bench.results import envelope
    from sooner.models.sizes import formats

    facts = machine.facts(llm.decoder.kernels)
    used = {"formats": formats(llm.decoder), "threads": facts["threads"]}
    return envelope(suite, facts, ["sooner", *sys.argv[1:]], settings | used, seed)


def keep(result: Mapping[str, Any], out: Path | None, no_save: bool) -> None:
    from sooner.bench.results import save

    if not no_save:
        note(f"saved {save(result, out)}")


def note(message: str) -> None:
    """Progress goes to standard error, so that standard output holds the result alone."""
    print(message, file=sys.stderr, flush=True)
