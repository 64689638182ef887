"""Results as PNG plots. matplotlib is a development dependency, imported only here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sooner.bench.results import Result, latest
from sooner.bench.tables import cost_title, machine_line, processor_line, speed_title
from sooner.errors import InputError


def draw(results: Sequence[Result], folder: Path) -> list[Path]:
    """The plots of one machine's newest results; returns the files."""
    pyplot = pyplot_of()
    paths = [_cost(pyplot, result, folder) for result in latest(results, "cost")]
    if speeds := latest(results, "speed"):
        paths.append(_speed(pyplot, speeds, folder / "speed.png"))
    return paths


def pyplot_of() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise InputError(f"the plots need matplotlib ({error}); run `pip install matplotlib`") from error
    matplotlib.use("agg")
    from matplotlib import pyplot

    return pyplot


def _cost(pyplot: Any, result: Result, folder: Path) -> Path:
    """Milliseconds over rows, both logarithmic, one line for each context, and the floor."""
    passes = result.data["passes"]
    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    contexts = sorted({entry["context"] for entry in passes})
    for context in contexts:
        mine = [entry for entry in passes if entry["context"] == context]
        axes.plot([e["rows"] for e in mine], [e["ms"] for e in mine], marker="o", label=f"{context} keys")
    floor = [entry for entry in passes if entry["context"] == contexts[0]]
    axes.plot([e["rows"] for e in floor], [e["floor_ms"] for e in floor], "k--", label="floor of this machine")
    axes.set(xscale="log", yscale="log", xlabel="rows in the target pass", ylabel="ms", title=cost_title(result.data))
    axes.set_xticks([e["rows"] for e in floor], [str(e["rows"]) for e in floor])
    plain_ticks(axes)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.supxlabel(machine_line(result.data["machine"]), fontsize="x-small")
    name = re.sub(r"[^a-z0-9]+", "-", cost_title(result.data).lower()).strip("-")
    return save_figure(pyplot, figure, folder / f"cost-{name}.png")


def _speed(pyplot: Any, results: Sequence[Result], path: Path) -> Path:
    """Speedup by category with its interval, one colour for each configuration; below the line speculation loses."""
    names = list(dict.fromkeys(name for result in results for name in result.data["categories"]))
    figure, axes = pyplot.subplots(figsize=(10, 4.5), layout="constrained")
    width = 0.8 / len(results)
    for i, result in enumerate(results):
        entries = [(at, result.data["categories"].get(name)) for at, name in enumerate(names)]
        drawn = [(at + (i + 0.5) * width - 0.4, e) for at, e in entries if e and e["speedup"] is not None]
        heights = [e["speedup"] for _, e in drawn]
        spans = [e["speedup_interval"] or (e["speedup"], e["speedup"]) for _, e in drawn]
        below = [height - low for height, (low, _) in zip(heights, spans)]
        above = [high - height for height, (_, high) in zip(heights, spans)]
        places = [at for at, _ in drawn]
        axes.bar(places, heights, width, yerr=[below, above], label=speed_title(result.data), capsize=2)
    axes.axhline(1.0, color="black", linewidth=1)
    axes.set_xticks(range(len(names)), names)
    axes.set(ylabel="speculative over plain, tokens/s", title="Speedup by category (95% interval over prompts)")
    axes.legend(fontsize="small")
    figure.supxlabel(processor_line(results[-1].data["machine"]), fontsize="x-small")
    return save_figure(pyplot, figure, path)


def plain_ticks(axes: Any) -> None:
    """1, 2 and 5 of each power of ten, written out, on a logarithmic axis of values."""
    from matplotlib.ticker import LogLocator, ScalarFormatter

    axes.minorticks_off()
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(ScalarFormatter())


def save_figure(pyplot: Any, figure: Any, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, metadata={"Software": None})
    pyplot.close(figure)
    return path
