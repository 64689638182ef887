"""`sooner lab`: the page that shows how the method works, and its twins on the command line."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sooner.cli import options
from sooner.errors import InputError
from sooner.types import SamplingParams

if TYPE_CHECKING:
    from sooner.lab.position import Drawn, Position

app = typer.Typer(help="See the method, try it, understand it: a web page, offline, and its twins on the command line.")

LOCAL = "127.0.0.1"
ALPHAS = (0.5, 0.6, 0.7, 0.8, 0.9)
LENGTHS = (1, 2, 4, 8)
Seed = Annotated[int, typer.Option(min=0, help="of the random draws")]


@app.callback(invoke_without_command=True)
def lab(
    context: typer.Context,
    out: Annotated[Path | None, typer.Option("--out", help="write the page into this folder instead")] = None,
    host: Annotated[str, typer.Option(help="address to bind to")] = LOCAL,
    port: Annotated[int, typer.Option(min=0, max=65535, help="port; 0 takes a free one")] = 0,
    open_page: Annotated[bool, typer.Option("--open", help="open the page in the browser")] = False,
) -> None:
    """Without a command: serve the lab's page on this machine until Ctrl-C."""
    serving = {"--host": host != LOCAL, "--port": port != 0, "--open": open_page}
    given = [name for name, is_given in serving.items() if is_given]
    if context.invoked_subcommand:
        refuse([*given, *(["--out"] if out else [])], f"{context.invoked_subcommand} shows no page")
        return
    from sooner.lab import pages

    if out:
        refuse(given, "--out writes files and serves nothing")
        pages.write(out)
        print(f"wrote {out / 'index.html'}; any web server shows it, for example: python3 -m http.server -d {out}")
        return
    pages.serve(host, port, ready=print_place, open_page=open_page)


def refuse(given: list[str], why: str) -> None:
    if given:
        raise InputError(f"{why}; leave out {', '.join(given)}")


def print_place(url: str) -> None:
    print(f"the lab is at {url} (Ctrl-C ends it)", flush=True)


@app.command()
def formulas(
    c: Annotated[float, typer.Option("--cost", help="a draft step as a share of a plain target pass")] = 0.1,
    rounds: Annotated[int, typer.Option(help="rounds that are simulated beside each formula")] = 300_000,
    seed: Seed = 0,
    as_json: options.AsJson = False,
) -> None:
    """Expected tokens a round, formula and simulation, and the draft length that pays most."""
    from sooner.bench.tables import markdown
    from sooner.lab.rounds import best_lengths, simulate_rounds
    from sooner.plan.formulas import expected_tokens

    tokens = [
        {
            "alpha": alpha,
            "k": k,
            "formula": expected_tokens(alpha, k),
            **asdict(simulate_rounds(alpha, k, rounds, seed)),
        }
        for alpha in ALPHAS
        for k in LENGTHS
    ]
    best = [asdict(one) for one in best_lengths(ALPHAS, c)]
    if as_json:
        print(json.dumps({"tokens": tokens, "cost": c, "best": best, "rounds": rounds, "seed": seed}))
        return
    print("Tokens a round: (1 - alpha^(k+1)) / (1 - alpha), and simulated with its standard error\n")
    rows = [
        [f"{t['alpha']:g}", f"{t['k']}", f"{t['formula']:.4f}", f"{t['mean']:.4f}", f"{t['error']:.4f}"] for t in tokens
    ]
    print(markdown(["alpha", "k", "formula", "simulated", "error"], rows))
    print(f"\nDraft length that pays most where a draft step costs {c:g} of a target pass\n")
    rows = [[f"{b['alpha']:g}", f"{b['length']}", f"{b['speedup']:.2f}x", f"{b['ceiling']:.1f}x"] for b in best]
    print(markdown(["alpha", "best k", "speedup", "ceiling 1/(1-alpha)"], rows))


@app.command()
def step(
    p: Annotated[str, typer.Option("--p", help="the target's weights, with commas")] = "0.30,0.25,0.20,0.15,0.07,0.03",
    q: Annotated[str, typer.Option("--q", help="the draft's weights")] = "0.10,0.10,0.30,0.30,0.15,0.05",
    temperature: Annotated[float, typer.Option(help="0 is greedy")] = 1.0,
    top_k: Annotated[int, typer.Option(help="0 switches it off")] = 0,
    top_p: Annotated[float, typer.Option(help="1 switches it off")] = 1.0,
    draws: Annotated[int, typer.Option(help="tokens that are drawn")] = 1_000_000,
    seed: Seed = 0,
    as_json: options.AsJson = False,
) -> None:
    """One position: acceptance, residual and output in closed form, what wrong rules do, and seeded draws."""
    from sooner.lab.position import agreement, draw, draw_coupled
    from sooner.lab.wrong import WRONG_RULES, Case, error

    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p)
    case = Case.of(weights("--p", p), weights("--q", q), params)
    here = case.here
    drawn, coupled = draw(here, draws, seed), draw_coupled(here, min(draws, 1_000_000), seed)
    result = {
        "columns": columns(here, drawn),
        "rate": here.rate,
        "drawn": {"draws": draws, "seed": seed, "rate": drawn.rate, "error": drawn.error(here.rate)},
        "agreement": asdict(agreement(here)) | {"shared_noise_drawn": coupled.rate},
        "wrong": {rule.name: error(case, rule) for rule in WRONG_RULES},
    }
    print(json.dumps(result) if as_json else step_text(result))


def columns(here: Position, drawn: Drawn) -> dict[str, list[float | None]]:
    """By token. Acceptance is None where q is 0."""
    acceptance = [float(a) if q > 0.0 else None for a, q in zip(here.acceptance, here.q)]
    return {
        "p": here.p.tolist(),
        "q": here.q.tolist(),
        "acceptance": acceptance,
        "accepted": here.accepted.tolist(),
        "residual": here.residual.tolist(),
        "output": here.output.tolist(),
        "drawn": drawn.frequencies.tolist(),
        "error": [drawn.error(chance) for chance in here.p],
    }


def step_text(result: dict[str, Any]) -> str:
    from sooner.bench.tables import markdown

    table, drawn, agree = result["columns"], result["drawn"], result["agreement"]
    rows = [
        [str(token), *("never drafted" if value is None else f"{value:.4f}" for value in row)]
        for token, row in enumerate(zip(*table.values()))
    ]
    wrong = [[name, f"{error:.4f}"] for name, error in result["wrong"].items()]
    return "\n".join(
        [
            markdown(["token", *table], rows),
            f"\nAcceptance rate: sum min(p, q) = 1 - TV = {result['rate']:.4f}; "
            f"drawn {drawn['rate']:.4f} +- {drawn['error']:.4f} ({drawn['draws']:,} draws, seed {drawn['seed']})",
            f"Choices that share their noise agree with {agree['shared_noise']:.4f} "
            f"(drawn {agree['shared_noise_drawn']:.4f}; never below {agree['shared_noise_bound']:.4f}), "
            f"a greedy draft with {agree['greedy_draft']:.4f}, independent draws with {agree['independent']:.4f}.\n",
            markdown(["wrong rule", "total variation from p"], wrong),
        ]
    )


@app.command()
def simulate(
    vocabulary: Annotated[int, typer.Option(help="tokens of the two models")] = 5,
    matrix: Annotated[int, typer.Option(min=0, help="seed of the target's matrix; 2 is the published one")] = 2,
    blur: Annotated[float, typer.Option(help="share of the uniform distribution in the draft")] = 0.4,
    k: Annotated[int, typer.Option("--draft-tokens", "-k", help="tokens drafted a round")] = 4,
    length: Annotated[int, typer.Option(help="tokens of a sequence")] = 64,
    sequences: Annotated[int, typer.Option(help="sequences of either kind")] = 60_000,
    seed: Seed = 0,
    as_json: options.AsJson = False,
) -> None:
    """Whole sequences of a two-matrix pair: frequencies with and without drafting, and tokens a target call."""
    from sooner.lab import chain

    pair = chain.blurred(chain.random_target(vocabulary, matrix), blur)
    run, steps = chain.simulate(pair, k, length, sequences, seed), chain.shortfall(pair, k, length)
    result = {
        "exact": chain.frequencies(pair, length).tolist(),
        "plain": run.plain.tolist(),
        "plain_error": run.plain_error.tolist(),
        "speculative": run.speculative.tolist(),
        "speculative_error": run.speculative_error.tolist(),
        "tokens_per_call": run.tokens_per_call,
        "tokens_per_call_error": run.tokens_per_call_error,
        "saved": run.saved,
        "mean_acceptance": pair.mean_acceptance,
        "acceptance_after": pair.acceptance.tolist(),
        **asdict(steps),
    }
    print(json.dumps(result) if as_json else simulate_text(result))


def simulate_text(result: dict[str, Any]) -> str:
    from sooner.bench.tables import markdown

    names = ["exact", "plain", "plain_error", "speculative", "speculative_error"]
    rows = [
        [str(token), *(f"{value:.4f}" if "error" not in name else f"{value:.5f}" for name, value in zip(names, row))]
        for token, row in enumerate(zip(*(result[name] for name in names)))
    ]
    after = ", ".join(f"{rate:.3f}" for rate in result["acceptance_after"])
    return "\n".join(
        [
            markdown(["token", "exact", "plain", "error", "speculative", "error"], rows),
            f"\nTokens a target call: {result['tokens_per_call']:.4f} +- {result['tokens_per_call_error']:.4f}, "
            f"exactly {result['real_rows_with_end']:.4f}; "
            f"{100 * result['saved']:.0f}% of target calls saved",
            f"Acceptance after each token: {after}; mean {result['mean_acceptance']:.4f}",
            f"The formula at that mean: {result['formula']:.4f}; with the last round cut at the end "
            f"{result['formula_with_end']:.4f}; real rows in an endless text {result['real_rows']:.4f}",
        ]
    )


def weights(option: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError(f"{option} is {text!r}, must be numbers with commas between; for example 0.4,0.6") from error
