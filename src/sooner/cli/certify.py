"""`sooner certify`: proves on the user's own model that speculation changes nothing, or shows where it does."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sooner.cli import options
from sooner.errors import InputError

if TYPE_CHECKING:
    from rich.progress import TaskID

    from sooner.certify.checks import Part
    from sooner.certify.report import Report
    from sooner.certify.subject import Subject

PARTS = ("laws", "tokens", "distribution", "speed", "controls")
WITHOUT_A_MODEL = {"laws", "tokens", "distribution", "controls"}
SILENT = ("prediction", "grammar")
# Options that mean nothing there: given all the same, they are refused.
OF_A_MODEL = ("draft", "prompts", "weights", "activations", "kernels", "device", "threads")
OF_SERVERS = ("endpoint", "against", "requests")
OF_OUR_ENGINE = ("model", "draft", "quick", "only", "controls", "seed", *OF_A_MODEL[2:])


def certify(
    context: typer.Context,
    model: Annotated[str | None, typer.Argument(help="smollm2, a .gguf file, or a Hugging Face folder")] = None,
    draft: options.Draft = None,
    prompts: Annotated[
        Path | None, typer.Option(help=".jsonl with prompt, messages or turns a line [default: our own]")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="fewer tokens and samples: a minute")] = False,
    only: Annotated[str | None, typer.Option(help="parts, comma-separated: " + ", ".join(PARTS))] = None,
    controls: Annotated[bool, typer.Option("--controls", help="also prove that wrong rules are caught")] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="of everything that is random here")] = 0,
    endpoint: Annotated[str | None, typer.Option(help="URL of an OpenAI-compatible server to test")] = None,
    against: Annotated[str | None, typer.Option(help="URL of the same model's server without speculation")] = None,
    requests: Annotated[int, typer.Option(min=1, help="sampled requests to each server")] = 200,
    report: Annotated[Path | None, typer.Option(help="write a readable HTML page to this file")] = None,
    weights: options.Weights = "auto",
    activations: options.Activations = "float32",
    kernels: options.Kernels = "auto",
    device: options.Device = "cpu",
    threads: options.Threads = None,
    as_json: options.AsJson = False,
) -> None:
    """Test exactness: laws by enumeration, tokens, distributions, speed invariants; or compare two servers."""
    settings: dict[str, Any] = {"command": "sooner " + " ".join(sys.argv[1:]), "seed": seed, "quick": quick}
    if report and not report.parent.is_dir():
        raise InputError(f"--report: there is no folder {report.parent}; make it, or give another place")
    if endpoint or against:
        refuse(context, OF_OUR_ENGINE, "when two servers are compared")
        parts = endpoint_parts(endpoint, against, prompts, requests)
    else:
        refuse(context, () if model else OF_A_MODEL, "without a MODEL")
        refuse(context, OF_SERVERS, "without --endpoint and --against")
        names = chosen(only, controls)
        load = {
            "weights": weights, "activations": activations, "kernels": kernels, "device": device, "threads": threads,
        }  # fmt: skip
        if not model and (needy := [name for name in names if name not in WITHOUT_A_MODEL]):
            raise InputError(f"part {needy[0]} needs a MODEL; give one, or choose --only laws,tokens,distribution")
        subject = open_subject(model, draft, prompts, load, settings) if model else None
        parts = own_parts(names, quick, seed, subject)
    finished = play(parts, settings)
    if report:
        write(report, finished.as_html())
    print(json.dumps(finished.as_dict()) if as_json else finished.line)
    if not finished.ok:
        raise typer.Exit(1)


def refuse(context: typer.Context, names: Sequence[str], where: str) -> None:
    for name in names:
        source = context.get_parameter_source(name)
        if source and source.name == "COMMANDLINE":
            shown = "MODEL" if name == "model" else f"--{name}"
            raise InputError(f"{shown} {context.params[name]} is of no use {where}; leave it out")


def chosen(only: str | None, controls: bool) -> list[str]:
    names = only.split(",") if only else [name for name in PARTS if name != "controls"]
    if unknown := [name for name in names if name not in PARTS]:
        raise InputError(f"--only {unknown[0]!r} is not a part; there are {', '.join(PARTS)}")
    return [*names, "controls"] if controls and "controls" not in names else names


def open_subject(
    model: str, draft: str | None, prompts: Path | None, load: dict[str, Any], settings: dict[str, Any]
) -> Subject:
    if not draft:
        raise InputError("certify compares with plain decoding and needs a draft; add --draft suffix")
    if silent := [name for name in draft.split(",") if name in SILENT]:
        raise InputError(
            f"drafter {silent[0]!r} proposes only what a request brings along; certify another, say suffix"
        )
    from sooner.bench.workloads import load_prompts, select
    from sooner.certify.subject import BATCH, Subject
    from sooner.llm import LLM

    asked = load_prompts(prompts) if prompts else select(load_prompts(None), [], 1)
    note(f"loading {model}")
    llm = LLM(model, draft=draft, max_sequences=BATCH, **load)
    subject = Subject.of(llm, [prompt.token_ids(llm.tokenizer) for prompt in asked[:BATCH]])
    kernels = llm.decoder.kernels
    settings |= {
        "model": model, "drafters": draft, "kernels": kernels.name, "output weights": llm.decoder.head.format,
        "activations": kernels.activations,
        "rows have equal bits in all passes": "yes" if kernels.exact_rows else f"no, bound {subject.bound} in logits",
        "prompts": f"{len(subject.prompts)} of {prompts.name if prompts else 'our own'}",
    }  # fmt: skip
    return subject


def own_parts(names: list[str], quick: bool, seed: int, subject: Subject | None) -> Iterator[Part]:
    """Each part is made when its turn comes."""
    from sooner.certify.controls import controls
    from sooner.certify.distribution import distribution
    from sooner.certify.law_cases import laws
    from sooner.certify.speed import speed
    from sooner.certify.tiny import tiny_subject
    from sooner.certify.tokens import tokens

    for name in names:
        if name == "laws":
            yield laws(quick)
        elif name == "distribution":
            yield distribution(quick, seed, subject)
        elif name == "controls":
            yield controls(seed)
        elif name == "tokens":
            yield tokens(quick, seed, subject or tiny_subject())
        elif subject and name == "speed":
            yield speed(quick, seed, subject)


def endpoint_parts(endpoint: str | None, against: str | None, prompts: Path | None, requests: int) -> Iterator[Part]:
    from sooner.bench.workloads import load_prompts, select
    from sooner.certify.client import Server
    from sooner.certify.endpoints import endpoints

    if not endpoint or not against:
        raise InputError("two servers are compared: give both --endpoint URL and --against URL")
    asked = load_prompts(prompts) if prompts else select(load_prompts(None), [], 1)
    texts = [str(prompt.messages[-1]["content"]) for prompt in asked]
    yield endpoints(Server.at(endpoint), Server.at(against), texts, requests)


def play(parts: Iterable[Part], settings: dict[str, Any]) -> Report:
    """Runs the parts under a progress bar on standard error, and says a line for each."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from sooner.certify.checks import run_part
    from sooner.certify.report import Report

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    columns = (BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    outcomes = []
    with Progress(*columns, console=console, transient=True) as progress:
        for part in parts:
            bar = progress.add_task(part.name, total=len(part.jobs), completed=-1)

            def tick(job: str, part: Part = part, bar: TaskID = bar) -> None:
                progress.update(bar, advance=1, description=f"{part.name}: {job}")

            outcome = run_part(part, tick)
            progress.remove_task(bar)
            outcomes.append(outcome)
            console.print(str(outcome), markup=False)
            for check in outcome.failed:
                console.print(f"  {check.name}: {check.text}", markup=False)
    return Report(settings, outcomes)


def write(path: Path, page: str) -> None:
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write the report to {path}: {error}; give another place with --report") from error
    note(f"wrote {path}")


def note(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
