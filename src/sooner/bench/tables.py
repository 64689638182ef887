"""Results as Markdown tables: on the terminal, in the report and in the README."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sooner.bench.results import Result, latest

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column is text and whose others are numbers."""
    cells = [list(header), ["---", *["---:"] * (len(header) - 1)], *map(list, rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    padded = [[row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:]))] for row in cells]
    return "\n".join(f"| {' | '.join(row)} |" for row in padded)


def number(value: float | None, digits: int = 1, unit: str = "") -> str:
    return "none" if value is None else f"{value:.{digits}f}{unit}"


def ratio(value: float | None) -> str:
    return number(value, 2, "x")


def span(interval: Sequence[float] | None) -> str:
    return "none" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}"


def machine_line(machine: Mapping[str, Any]) -> str:
    return f"{processor_line(machine)}, {machine['kernels']} kernels ({machine['isa']})"


def processor_line(machine: Mapping[str, Any]) -> str:
    generation = f" (family {machine['family']}, model {machine['model']})" if machine.get("family") else ""
    return f"{machine['processor']}{generation}, {machine['threads']} of {machine['cores']} cores"


def cost_title(data: Mapping[str, Any]) -> str:
    return f"{data['settings']['model']}, weights {weights(data['settings'])}"


def weights(settings: Mapping[str, Any]) -> str:
    """What was asked for, and what that meant where it does not say."""
    formats = "+".join(settings["formats"])
    kernels = "" if settings["kernels"] == "auto" else f", {settings['kernels']} kernels"
    rounded = "" if settings["activations"] == "float32" else f", activations {settings['activations']}"
    return (formats if settings["weights"] == formats else f"{settings['weights']} ({formats})") + rounded + kernels


def cost_table(data: Mapping[str, Any]) -> str:
    """Milliseconds by rows; the ratio to the floor at the shortest context, longer contexts against that one."""
    contexts = sorted({entry["context"] for entry in data["passes"]})
    by_place = {(entry["rows"], entry["context"]): entry for entry in data["passes"]}
    header = ["rows", "floor ms", f"ms at {contexts[0]} keys", "x floor"]
    header += [title for context in contexts[1:] for title in (f"ms at {context}", f"x {contexts[0]} keys")]

    def line(rows: int) -> list[str]:
        short = by_place[rows, contexts[0]]
        cells = [str(rows), number(short["floor_ms"]), number(short["ms"]), ratio(short["ratio"])]
        for context in contexts[1:]:
            ms = by_place[rows, context]["ms"]
            cells += [number(ms), ratio(ms / short["ms"])]
        return cells

    return markdown(header, [line(rows) for rows in sorted({entry["rows"] for entry in data["passes"]})])


def costs_table(results: Sequence[Result]) -> str:
    """One line for each model and format: a pass over one row, and every row count's ratio, at the shortest context."""
    shortest = [_at_shortest(result.data) for result in results]
    rows = sorted({count for passes in shortest for count in passes})

    def line(title: str, passes: Mapping[int, Mapping[str, Any]]) -> list[str]:
        first = passes[min(passes)]
        ratios = [ratio(passes[count]["ratio"]) if count in passes else "none" for count in rows]
        return [title, number(first["ms"]), *ratios]

    header = ["model, weights", f"ms at {rows[0]}", *map(str, rows)]
    return markdown(header, [line(cost_title(r.data), passes) for r, passes in zip(results, shortest, strict=True)])


def _at_shortest(data: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    """Passes by rows."""
    context = min(entry["context"] for entry in data["passes"])
    return {entry["rows"]: entry for entry in data["passes"] if entry["context"] == context}


def cost_facts(data: Mapping[str, Any]) -> str:
    outside, memory, prefill = data["outside"], data["memory"], data["prefill"]
    return "\n".join(
        [
            f"- read bandwidth {number(data['read_gbs'])} GB/s between the passes, peak {number(data['peak_gflops'])} "
            f"GFLOP/s, weights {number(data['weight_bytes'] / 1e6)} MB",
            f"- outside kernels ({outside['kernels']}): {number(outside['ms'], 2)} of {number(outside['step_ms'])} ms "
            "in a step at one row",
            f"- prefill of {prefill['rows']} tokens: {number(prefill['ms'])} ms, "
            f"{number(100 * prefill['share_of_peak'], 0)}% of peak",
            f"- resident memory over a bare torch process: {number(memory['over_bare_mb'], 0)} MB, "
            f"limit {number(memory['limit_mb'], 0)} MB",
        ]
    )


def drafter_table(data: Mapping[str, Any]) -> str:
    header = ["drafter", "context", "at most", "proposed", "first ms", "propose ms", "commit ms"]
    return markdown(
        header,
        (
            [
                *(str(entry[key]) for key in ("drafter", "context", "draft_tokens")),
                number(entry["proposed"]),
                *(number(entry[key], 3) for key in ("first_ms", "ms", "commit_ms")),
            ]
            for entry in data["drafters"]
        ),
    )


def speed_title(data: Mapping[str, Any]) -> str:
    s = data["settings"]
    prompts = "" if s["prompts"] == "ours" else f", {s['prompts']}"
    return f"{s['draft']} ({s['draft_tokens']}), {weights(s)}, T={s['temperature']:g}{prompts}"


def speed_table(data: Mapping[str, Any]) -> str:
    header = ["category", "prompts", "plain tokens/s", "speculative", "speedup", "95% interval", "with prefill"]
    header += ["tokens a round", "acceptance", "draft / target / rest", "same tokens"]

    def line(name: str, c: Mapping[str, Any]) -> list[str]:
        share = c["time_share"] or {}
        return [
            name,
            str(c["prompts"]),
            number(c["plain_tok_s"]),
            number(c["spec_tok_s"]),
            ratio(c["speedup"]),
            span(c["speedup_interval"]),
            ratio(c["end_to_end_speedup"]),
            number(c["tokens_per_round"], 2),
            number(c["acceptance_rate"], 2),
            " / ".join(f"{100 * part:.0f}%" for part in share.values()) or "none",
            {True: "yes", False: "NO", None: "by law"}[c["identical"]],
        ]

    table = markdown(header, [line(name, c) for name, c in data["categories"].items()])
    return f"{table}\n\nGeometric mean {ratio(data['geomean_speedup'])} ({span(data['geomean_interval'])})."


def speedups_table(results: Sequence[Result]) -> str:
    """One line for each configuration, one column for each category."""
    names = list(dict.fromkeys(name for result in results for name in result.data["categories"]))
    return markdown(
        ["draft (most tokens), weights, temperature", *names, "geometric mean"],
        (
            [
                speed_title(result.data),
                *(ratio(result.data["categories"].get(name, {}).get("speedup")) for name in names),
                ratio(result.data["geomean_speedup"]),
            ]
            for result in results
        ),
    )


def concurrency_table(data: Mapping[str, Any]) -> str:
    header = [
        "at once",
        "plain tokens/s",
        "speculative",
        "speedup",
        "median latency",
        "speculative",
        "95th",
        "speculative",
    ]
    header += ["first token", "speculative", "same tokens"]

    def line(level: Mapping[str, Any]) -> list[str]:
        plain, drafted = level["plain"], level["speculative"]
        names = ("latency_median_s", "latency_p95_s", "first_token_median_s")
        return [
            str(level["concurrency"]),
            number(plain["tok_s"]),
            number(drafted["tok_s"]),
            ratio(drafted["tok_s"] / plain["tok_s"]),
            *(f"{run[name]:.2f} s" for name in names for run in (plain, drafted)),
            "yes" if level["identical"] else "no",
        ]

    return markdown(header, [line(level) for level in data["levels"]])


def peers_table(data: Mapping[str, Any]) -> str:
    """Engines by speed, with Sooner's best mode over each; then those that did not run, with the reason."""
    header = ["engine", "decoding tokens/s", "with prefill", "Sooner's best over it", "same answers as its plain"]
    table = markdown(
        header,
        (
            [
                f"{name} {engine['version']}",
                number(engine["geomean_tok_s"]),
                number(engine["geomean_end_to_end_tok_s"]),
                ratio(engine["sooner_over_it"]),
                f"{engine['same_as_plain']} of {engine['prompts']}",
            ]
            for name, engine in _by_speed(data)
        ),
    )
    return "\n".join([table, *_did_not_run(data)])


def peers_summary(data: Mapping[str, Any]) -> str:
    """One line for each engine, the fastest first: plain, its fastest speculation, and Sooner's best over its best."""
    modes: dict[str, dict[str, Mapping[str, Any]]] = {}
    for name, engine in _by_speed(data):
        family, _, mode = name.partition("/")
        modes.setdefault(family, {})[mode] = engine

    def line(family: str, mine: Mapping[str, Mapping[str, Any]]) -> list[str]:
        plain, drafted = mine.get("plain"), next((mode for mode in mine if mode != "plain"), None)
        best = next(iter(mine.values()))
        return [
            f"{family} {best['version']}",
            number(plain["geomean_tok_s"] if plain else None),
            f"{number(mine[drafted]['geomean_tok_s'])} ({drafted})" if drafted else "none",
            f"{mine[drafted]['same_as_plain']} of {mine[drafted]['prompts']}" if drafted else "",
            ratio(best["sooner_over_it"]),
        ]

    header = ["engine", "plain tokens/s", "speculative", "same answers as plain", "Sooner's best over its best"]
    table = markdown(header, [line(family, mine) for family, mine in modes.items()])
    return "\n".join([table, *_did_not_run(data)])


def _by_speed(data: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return sorted(data["engines"].items(), key=lambda item: -item[1]["geomean_tok_s"])


def _did_not_run(data: Mapping[str, Any]) -> list[str]:
    return [f"\nDid not run: {name} ({why})." for name, why in data["failed"].items()]


def readme_block(results: Sequence[Result]) -> str:
    """What stands between the README's markers, nothing but what results/ says: the machine that was measured last in
    full, the others by name."""
    newest = max(results, key=lambda result: result.date)
    others = {result.machine: result for result in results if result.machine != newest.machine}
    parts = [BEGIN, *_machine_block([result for result in results if result.machine == newest.machine])]
    parts += [_elsewhere(result) for result in others.values()]
    return "\n\n".join([*parts, END])


def _elsewhere(result: Result) -> str:
    path = f"results/{result.machine}/report.md"
    return f"The same on {processor_line(result.data['machine'])}: [{path}]({path})."


def _machine_block(results: Sequence[Result]) -> list[str]:
    parts = [
        f"Measured on {processor_line(results[-1].data['machine'])}; raw samples in `results/{results[-1].machine}/`."
    ]
    speeds = [result for result in latest(results, "speed") if not result.data["settings"].get("categories")]
    if speeds:  # of all categories: the report has the others too
        parts += [f"Speculative over plain decoding, {_workload(speeds)}:", speedups_table(speeds)]
    if peers := latest(results, "peers"):
        newest = max(peers, key=lambda result: result.date)
        parts += [f"Other engines, {peers_title(newest.data)}:", peers_summary(newest.data)]
    if costs := latest(results, "cost"):
        parts += [
            "A target pass over its floor, the larger of reading and arithmetic, by rows:",
            costs_table(costs),
        ]
    return parts


def _workload(results: Sequence[Result]) -> str:
    models = " or ".join(sorted({result.data["settings"]["model"] for result in results}))
    lengths = sorted({result.data["settings"]["max_tokens"] for result in results})
    return f"{models}, answers of up to {' or '.join(map(str, lengths))} tokens, decoding alone"


def peers_title(data: Mapping[str, Any]) -> str:
    s = data["settings"]
    return (
        f"{s['model']}, the same {s['prompts']} prompts, greedy, up to {s['max_tokens']} tokens, "
        f"{s['threads']} threads, median of {s['runs']} runs, geometric mean over categories"
    )
