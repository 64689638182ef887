"""`sooner generate`: answers prompts, plain or speculative, and compares the two."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from sooner.cli import options
from sooner.cli.batch import write_answers
from sooner.cli.progress import loading
from sooner.cli.prompts import read_prompts, read_text
from sooner.errors import InputError
from sooner.types import RoundRecord, Rule, SamplingParams, Structured

if TYPE_CHECKING:
    from sooner.llm import LLM
    from sooner.outputs import Completion, Event

COLOURS = {"accepted": "32", "correction": "33", "bonus": "36"}  # green, yellow, cyan


def generate(
    model: options.Model,
    prompt: Annotated[list[str] | None, typer.Option("--prompt", "-p", help="a prompt; may be repeated")] = None,
    file: Annotated[
        list[Path] | None, typer.Option("--file", "-f", help="a text file, or .jsonl with prompt or messages a line")
    ] = None,
    draft: options.Draft = None,
    draft_tokens: options.DraftTokens = "auto",
    draft_branches: options.DraftBranches = 1,
    verify: options.Verify = "auto",
    temperature: Annotated[float, typer.Option(help="0 is greedy")] = 0.0,
    top_k: Annotated[int, typer.Option(help="0 switches it off")] = 0,
    top_p: Annotated[float, typer.Option(help="1 switches it off")] = 1.0,
    min_p: Annotated[float, typer.Option(help="0 switches it off")] = 0.0,
    seed: Annotated[int | None, typer.Option(help="makes sampling repeatable")] = None,
    max_tokens: Annotated[int, typer.Option("--max-tokens", "-n", help="most tokens of an answer")] = 256,
    stop: Annotated[list[str] | None, typer.Option(help="a string that ends the answer; may be repeated")] = None,
    json_schema: Annotated[Path | None, typer.Option(help="a file with the JSON schema that answers follow")] = None,
    regex: Annotated[str | None, typer.Option(help="a regular expression that whole answers match")] = None,
    grammar: Annotated[Path | None, typer.Option(help="a file with a grammar for answers (Lark or GBNF)")] = None,
    prediction: Annotated[Path | None, typer.Option(help="a file with the text that answers will be like")] = None,
    chat: Annotated[bool | None, typer.Option("--chat/--raw", help="[default: chat where the model has it]")] = None,
    weights: options.Weights = "auto",
    activations: options.Activations = "float32",
    kernels: options.Kernels = "auto",
    device: options.Device = "cpu",
    threads: options.Threads = None,
    max_context: options.MaxContext = None,
    plan: options.Plan = None,
    shared_history: options.SharedHistory = False,
    compare: Annotated[bool, typer.Option("--compare", help="answer plainly too and compare")] = False,
    show: Annotated[bool, typer.Option("--show", help="colour accepted, corrected and bonus tokens")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="answer all prompts at once, one JSON line each in this file")
    ] = None,
    max_sequences: Annotated[int, typer.Option(min=1, help="answers in progress at once, with --output")] = 8,
    trace: Annotated[Path | None, typer.Option(help="write one JSON line a round to this file")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Answer prompts from -p, --file or standard input."""
    prompts = read_prompts(prompt or [], file or [])
    params = SamplingParams(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=seed,
        max_tokens=max_tokens,
        stop=tuple(stop or ()),
        structured=structured(json_schema, regex, grammar),
    )
    expected = "" if prediction is None else read_text(prediction)
    if compare and not (draft or plan or expected or shared_history):
        raise InputError("--compare needs a draft to compare with; add --draft suffix")
    if output and (compare or show or as_json):
        raise InputError("--output writes JSON lines; leave out --compare, --show and --json")
    if not output:
        for one in prompts:
            one.needs_no_file()
    note(f"loading {model}")
    from sooner.llm import LLM

    tracer = Tracer(trace) if trace else None
    llm = LLM(
        model,
        draft=draft,
        draft_tokens=options.draft_tokens(draft_tokens),
        draft_branches=draft_branches,
        verify=cast(Rule, verify),
        weights=weights,
        activations=activations,
        kernels=kernels,
        device=device,
        threads=threads,
        max_context=max_context,
        plan=plan,
        max_sequences=max_sequences,
        shared_history=shared_history,
        trace=tracer.write if tracer else None,
        progress=loading,
    )
    if tracer:
        tracer.decode = lambda ids: llm.tokenizer.decode(ids, skip_special=False)
    if output:
        write_answers(llm, prompts, params, expected, chat, output)
        return
    for number, one in enumerate(prompts):
        if len(prompts) > 1 and not as_json:
            print(("\n" if number else "") + f"--- {number + 1}/{len(prompts)}: {one.heading}")
        wanted = expected if one.prediction is None else one.prediction
        answer(llm, one.ids(llm, chat), one.params(params), wanted, compare, show, as_json)


def structured(json_schema: Path | None, regex: str | None, grammar: Path | None) -> Structured | None:
    if all(form is None for form in (json_schema, regex, grammar)):
        return None
    schema, rules = (None if path is None else read_text(path) for path in (json_schema, grammar))
    return Structured(json_schema=schema, regex=regex, grammar=rules)


def answer(
    llm: LLM, ids: list[int], params: SamplingParams, expected: str, compare: bool, show: bool, as_json: bool
) -> None:
    """One prompt: streams the answer, or both answers, and prints what they cost."""
    if compare:
        list(llm.stream(ids, SamplingParams(max_tokens=4), speculative=False))  # the first pass of a process is slow
        if params.seed is None and not params.greedy:
            raise InputError("--compare at a temperature above 0 needs --seed, else two answers differ by chance")
    runs = {"plain": False, "speculative": True} if compare else {"": True}
    streams = {
        name: llm.stream(ids, params, speculative=speculative, prediction=expected)
        for name, speculative in runs.items()
    }
    done = {name: run(events, name, show, as_json) for name, events in streams.items()}
    if as_json:
        print(json.dumps(report(llm, ids, done)))
    elif compare:
        print(summary(report(llm, ids, done)))


def run(events: Iterator[Event], name: str, show: bool, quiet: bool) -> Completion:
    if name and not quiet:
        print(f"[{name}]")
    completion: Completion | None = None
    for event in events:
        completion = event.completion
        if not quiet:
            print("".join(paint(piece.text, piece.origin) for piece in event.pieces) if show else event.text, end="")
            sys.stdout.flush()
    assert completion is not None
    if not quiet:
        print()
        note(cost_line(completion))
    if completion.error:
        raise InputError(completion.error)
    return completion


def paint(text: str, origin: str) -> str:
    return f"\x1b[{COLOURS[origin]}m{text}\x1b[0m" if text else ""


def cost_line(completion: Completion) -> str:
    """tokens/s of decoding alone; tokens a round and acceptance where something was drafted."""
    stats = completion.stats
    parts = [f"{stats.output_tokens} tokens ({completion.finish_reason})"]
    if stats.tokens_per_second:
        parts.append(f"{stats.tokens_per_second:.1f} tokens/s")
    if stats.drafted:
        parts.append(f"{stats.tokens_per_round:.2f} tokens a round, acceptance {stats.acceptance_rate:.2f}")
    if stats.drafter_error:
        parts.append(stats.drafter_error)
    return ", ".join(parts)


def report(llm: LLM, ids: list[int], done: dict[str, Completion]) -> dict[str, Any]:
    """The JSON of one prompt: the speculative run's answer, and the comparison where there was one."""
    last = list(done.values())[-1]
    result: dict[str, Any] = {
        "prompt_token_ids": ids,
        "text": last.text,
        "token_ids": last.token_ids,
        "finish_reason": last.finish_reason,
        "stats": last.stats.as_dict(),
    }
    if "plain" in done:
        plain, spec = done["plain"].stats, last.stats
        rates = plain.tokens_per_second, spec.tokens_per_second
        result |= {
            "identical": done["plain"].token_ids == last.token_ids,
            "speedup": rates[1] / rates[0] if rates[0] and rates[1] else None,
            "tokens_per_round": spec.tokens_per_round,
            "acceptance_rate": spec.acceptance_rate,
            "plain_stats": plain.as_dict(),
        }
        if llm.speculation.rule in ("rejection", "block"):
            result["note"] = f"{llm.speculation.rule} keeps the distribution, not the tokens of one seed"
    return result


def summary(result: dict[str, Any]) -> str:
    def figure(name: str) -> str:
        return "none" if result[name] is None else f"{result[name]:.2f}"

    same = "yes" if result["identical"] else "no"
    return (
        f"speedup {figure('speedup')}x, {figure('tokens_per_round')} tokens a round, "
        f"acceptance {figure('acceptance_rate')}, identical: {same}"
        + (f" ({result['note']})" if "note" in result else "")
    )


class Tracer:
    """Writes one JSON line a round, with the text of its tokens."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = path.open("w", encoding="utf-8")
        except OSError as error:
            raise InputError(f"cannot write the trace to {path}: {error}") from error
        self.decode: Callable[[Sequence[int]], str] = str

    def write(self, record: RoundRecord) -> None:
        texts: dict[str, Any] = {}
        for name, tokens in (("draft", record.draft), ("committed", record.committed)):
            pieces = [self.decode([token]) for token in tokens]
            texts |= {f"{name}_text": self.decode(tokens), f"{name}_pieces": pieces}
        self._file.write(json.dumps(asdict(record) | texts) + "\n")
        self._file.flush()


def note(message: str) -> None:
    """Progress and costs go to standard error, so that standard output holds the answer alone."""
    print(message, file=sys.stderr, flush=True)
