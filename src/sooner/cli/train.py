"""`sooner train`: drafts for a target that has none, from the target's own answers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sooner.cli import options
from sooner.errors import InputError

if TYPE_CHECKING:
    from sooner.train.loop import Progress
    from sooner.train.teach import Job, Reports

app = typer.Typer(no_args_is_help=True, help="Train drafts on the target's own answers; a killed training goes on.")

Prompts = Annotated[
    Path | None, typer.Option(help=".jsonl with prompt, messages or turns a line; never what you measure")
]
Out = Annotated[Path, typer.Option(help="folder for the draft; answers, hidden states and checkpoints lie in it too")]
Invent = Annotated[int, typer.Option(min=0, help="prompts that the target invents from its own chat template")]
MaxTokens = Annotated[int, typer.Option("--max-tokens", "-n", min=2, help="most tokens of an answer")]
Tokens = Annotated[int, typer.Option(min=1, help="answer tokens to train on, each as often as it is seen")]
Rate = Annotated[float, typer.Option(min=1e-6, help="of AdamW, relative to what a weight matrix bears")]
Batch = Annotated[int, typer.Option(min=1, help="answer tokens of one update")]
CacheGb = Annotated[float, typer.Option(min=0, help="disk space for hidden states; the rest is computed each time")]
Seed = Annotated[int, typer.Option(min=0, help="of answers, order and weights")]


@app.command()
def eagle(
    model: options.Model,
    out: Out,
    prompts: Prompts = None,
    invent: Invent = 0,
    max_tokens: MaxTokens = 256,
    tokens: Tokens = 1_000_000,
    rate: Rate = 0.03,
    batch: Batch = 800,
    cache_gb: CacheGb = 4.0,
    seed: Seed = 0,
    weights: options.Weights = "auto",
    activations: options.Activations = "float32",
    threads: options.Threads = None,
    vocabulary: Annotated[
        int | None,
        typer.Option(min=1, help="tokens that the head can draft: the answers' most frequent [default: 8192]"),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, max=3, help="drafted tokens in a row that are trained")] = 2,
    taps: Annotated[
        str, typer.Option(help="layers whose inputs the head reads [default: 2, the middle, the last]")
    ] = "",
    layout: Annotated[str, typer.Option("--format", help="eagle3 (original) or speculators")] = "eagle3",
    start: Annotated[
        Path | None, typer.Option(help="folder of a head that this command made, to train it further on other answers")
    ] = None,
) -> None:
    """Train an EAGLE-3 head, which drafts from the target's hidden states."""
    from sooner.train.export import FORMATS
    from sooner.train.teach_eagle import VOCABULARY, EagleOptions, train_eagle

    if layout not in FORMATS:
        raise InputError(f"--format is {layout!r}, must be {' or '.join(FORMATS)}")
    for option, value in (("--taps", taps), ("--vocabulary", vocabulary)):
        if start is not None and value:
            raise InputError(
                f"--start and {option} exclude each other: the head in --start keeps its own; leave one out"
            )
    chosen = EagleOptions(vocabulary or VOCABULARY, steps, _layers(taps), layout, start)
    job = _job(
        model, out, prompts, invent, max_tokens, seed, weights, activations, threads, tokens, rate, batch, cache_gb
    )
    with _teacher(job) as teacher:
        train_eagle(teacher, chosen)


@app.command()
def medusa(
    model: options.Model,
    out: Out,
    prompts: Prompts = None,
    invent: Invent = 0,
    max_tokens: MaxTokens = 256,
    tokens: Tokens = 1_000_000,
    rate: Rate = 0.03,
    batch: Batch = 800,
    cache_gb: CacheGb = 4.0,
    seed: Seed = 0,
    weights: options.Weights = "auto",
    activations: options.Activations = "float32",
    threads: options.Threads = None,
    heads: Annotated[int, typer.Option(min=1, max=8, help="tokens that are drafted at once")] = 3,
    blocks: Annotated[int, typer.Option(min=1, max=4, help="residual blocks of a head")] = 1,
) -> None:
    """Train Medusa heads, each of which guesses one later token."""
    from sooner.train.medusa import train_medusa

    job = _job(
        model, out, prompts, invent, max_tokens, seed, weights, activations, threads, tokens, rate, batch, cache_gb
    )
    with _teacher(job) as teacher:
        train_medusa(teacher, heads, blocks)


@app.command()
def draft(
    model: options.Model,
    out: Out,
    prompts: Prompts = None,
    invent: Invent = 0,
    max_tokens: MaxTokens = 256,
    tokens: Tokens = 1_000_000,
    rate: Rate = 0.03,
    batch: Batch = 800,
    cache_gb: CacheGb = 4.0,
    seed: Seed = 0,
    weights: options.Weights = "auto",
    activations: options.Activations = "float32",
    threads: options.Threads = None,
    layers: Annotated[int, typer.Option(min=1, help="layers of the target that the draft begins with")] = 4,
) -> None:
    """Train a small model of the same tokenizer, which drafts on its own."""
    from sooner.train.small import train_small

    job = _job(
        model, out, prompts, invent, max_tokens, seed, weights, activations, threads, tokens, rate, batch, cache_gb
    )
    with _teacher(job) as teacher:
        train_small(teacher, layers)


@app.command()
def ngram(
    model: options.Model,
    out: Out,
    prompts: Prompts = None,
    invent: Invent = 0,
    max_tokens: MaxTokens = 256,
    seed: Seed = 0,
    weights: options.Weights = "auto",
    activations: options.Activations = "float32",
    threads: options.Threads = None,
    order: Annotated[int, typer.Option(min=1, max=8, help="tokens of the longest contexts")] = 4,
    start: Annotated[
        Path | None, typer.Option(help="folder of an earlier model, whose contexts fill the gaps of this one")
    ] = None,
) -> None:
    """Count the target's answers into an n-gram model, which drafts in microseconds."""
    from sooner.train.ngram import train_ngram

    with _teacher(_job(model, out, prompts, invent, max_tokens, seed, weights, activations, threads)) as teacher:
        train_ngram(teacher, order, start)


def _layers(text: str) -> tuple[int, ...] | None:
    if not text:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--taps is {text!r}, must be layers such as 2,15,29") from None


def _job(
    model: str, out: Path, prompts: Path | None, invent: int, max_tokens: int, seed: int, weights: str,
    activations: str, threads: int | None, tokens: int = 0, rate: float = 0.03, batch: int = 800, cache_gb: float = 0.0,
) -> Job:  # fmt: skip
    """tokens to cache_gb: of those that learn by gradients."""
    from sooner.train.loop import Plan
    from sooner.train.teach import Job

    if prompts is None and not invent:
        raise InputError("there is nothing to answer; give --prompts FILE, or --invent 500")
    plan = Plan(tokens=tokens, rate=rate, batch=batch, seed=seed)
    return Job(model, out, plan, prompts, invent, max_tokens, int(cache_gb * 1e9), weights, activations, threads)


@contextmanager
def _teacher(job: Job) -> Iterator[Any]:
    from sooner.train.teach import Teacher

    try:
        yield Teacher(job, _reports())
    except KeyboardInterrupt:
        _clear()
        print(f"{job.out} keeps what was done up to the last measurement; the same command goes on from there")
        raise
    print(f"{job.out}: model.safetensors, config.json, README.md, curve.json")


def _reports() -> Reports:
    """Lines and measurements on standard output, bars on standard error where a person looks."""
    from sooner.train.teach import Reports

    def updated(progress: Progress, loss: float) -> None:
        rate = progress.tokens / max(progress.seconds, 1e-9)
        _bar(progress.tokens, progress.end, f"tokens, loss {loss:.3f}, {rate:,.0f} tokens/s")

    def measured(point: dict[str, Any]) -> None:
        _clear()
        shares = ", ".join(f"{share:.3f}" for share in point["acceptance"])
        print(
            f"{point['tokens']:>9,} tokens: accepted {shares}; {point['tokens_a_round']:.3f} tokens a round", flush=True
        )

    return Reports(print, lambda done, count: _bar(done, count, "answers"), updated, measured)


def _bar(done: int, total: int, what: str) -> None:
    if sys.stderr.isatty():
        filled = 30 * min(done, total) // total
        print(f"\r\033[K[{'#' * filled}{'.' * (30 - filled)}] {done:,} of {total:,} {what}", end="", file=sys.stderr)


def _clear() -> None:
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
