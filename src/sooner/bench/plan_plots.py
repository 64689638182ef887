"""The plots of a plan as PNG files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sooner.bench.plots import plain_ticks, pyplot_of, save_figure
from sooner.bench.verdict import ALL


def draw_plan(plan: Mapping[str, Any], folder: Path) -> list[Path]:
    """Speedup by draft length and by concurrency, the cost curve, and acceptance by position."""
    pyplot = pyplot_of()
    plots = {"length": by_length, "concurrency": by_concurrency, "cost": cost_curve, "acceptance": by_position}
    paths = []
    for name, draw in plots.items():
        figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
        draw(axes, plan)
        axes.grid(alpha=0.3)
        figure.supxlabel(f"{plan['settings']['model']}, {plan['machine']['slug']}", fontsize="x-small")
        paths.append(save_figure(pyplot, figure, folder / f"plan-{name}.png"))
    return paths


def by_length(axes: Any, plan: Mapping[str, Any]) -> None:
    """One line a drafter and load; the best length of each marked."""
    for cell in whole(plan):
        lines: dict[str, dict[int, float]] = {}
        for key, gain in cell["fixed"].items():
            name, _, tokens = key.rpartition(" ")
            lines.setdefault(name, {})[int(tokens)] = gain
        for name, gains in lines.items():
            [line] = axes.plot(
                list(gains), list(gains.values()), marker=".", label=f"{name}, {cell['concurrency']} in flight"
            )
            best = max(gains, key=lambda k: gains[k])
            axes.plot([best], [gains[best]], "o", markersize=10, fillstyle="none", color=line.get_color())
    axes.axhline(1.0, color="black", linewidth=1)
    axes.set(
        xlabel="drafted tokens a round", ylabel="speedup", title="Speedup by draft length, the best of each marked"
    )
    axes.legend(fontsize="small")


def by_concurrency(axes: Any, plan: Mapping[str, Any]) -> None:
    """The policy with its interval, and the best fixed length."""
    cells = whole(plan)
    loads, gains = [cell["concurrency"] for cell in cells], [cell["speedup"] for cell in cells]
    spans = [cell["interval"] or (cell["speedup"], cell["speedup"]) for cell in cells]
    below = [max(gain - low, 0.0) for gain, (low, _) in zip(gains, spans)]
    above = [max(high - gain, 0.0) for gain, (_, high) in zip(gains, spans)]
    axes.errorbar(loads, gains, yerr=[below, above], marker="o", capsize=3, label="auto (95% interval)")
    axes.plot(loads, [cell["best_fixed"]["speedup"] for cell in cells], "s--", label="best fixed length")
    axes.plot(loads, [cell["end_to_end"] for cell in cells], "^:", label="auto, prompts included")
    axes.axhline(1.0, color="black", linewidth=1)
    axes.set_xticks(loads, [str(load) for load in loads])
    axes.set(xlabel="requests in flight", ylabel="speedup", title="Speedup by concurrency")
    axes.legend(fontsize="small")


def cost_curve(axes: Any, plan: Mapping[str, Any]) -> None:
    live = {int(rows): ms for rows, ms in plan["costs"]["live_ms"].items()}
    table = plan["start"]["table"]
    axes.plot(table["rows"], [1e3 * s for s in table["seconds"]], "k--", label="measured at the start")
    axes.plot(list(live), list(live.values()), marker="o", label="as live rounds corrected it")
    axes.set(xscale="log", yscale="log", xlabel="rows in the target pass", ylabel="ms", title="Cost of a target pass")
    axes.set_xticks(list(live), [str(rows) for rows in live])
    plain_ticks(axes)
    axes.legend(fontsize="small")


def by_position(axes: Any, plan: Mapping[str, Any]) -> None:
    for one in plan["theory"]:
        shares = one.get("acceptance", [])
        axes.plot(range(1, len(shares) + 1), shares, marker="o", label=one["drafter"])
    axes.set(ylim=(0.0, 1.02), xlabel="position in the draft", ylabel="accepted where those before were")
    axes.set_title("Acceptance by position")
    axes.legend(fontsize="small")


def whole(plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The cells of all categories together, by load."""
    return [cell for cell in plan["cells"] if cell["category"] == ALL]
