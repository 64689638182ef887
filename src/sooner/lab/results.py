"""What the page shows of results/: figures without raw samples. `sooner bench report --update-readme` writes it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sooner.lab.pages import PAGE

RESULTS = PAGE / "data" / "results.json"
SPEED_FIELDS = (
    "speedup", "speedup_interval", "end_to_end_speedup", "plain_tok_s", "spec_tok_s", "tokens_per_round",
    "acceptance_rate", "identical",
)  # fmt: skip


def summarise(
    measured: Mapping[str, Sequence[tuple[str, str, Mapping[str, Any]]]], machines: Sequence[str], root: Path
) -> dict[str, Any]:
    """measured: by suite, (title, file, data) of each result that is shown. root: the folder of results."""
    forms = {"speed": _speed, "peers": _peers, "cost": _cost, "concurrency": _concurrency}
    shown = {
        suite: [form(data) | _source(title, file, data) for title, file, data in measured[suite]]
        for suite, form in forms.items()
    }
    return {
        "machines": list(machines),
        "speeds": shown["speed"],
        "peers": shown["peers"],
        "costs": shown["cost"],
        "concurrency": shown["concurrency"],
        "controls": controls(root),
    }


def render(summary: Mapping[str, Any]) -> str:
    return json.dumps(summary, indent=1) + "\n"


def controls(root: Path) -> list[dict[str, Any]]:
    """What `sooner certify --controls` last said of each wrong rule, on any machine."""
    found: list[dict[str, Any]] = []
    for path in sorted(root.glob("*/certify/*.json")):
        parts = json.loads(path.read_text(encoding="utf-8")).get("parts", {})
        if "controls" in parts:
            found = [{"name": c["name"], "caught_by": c["caught_by"]} for c in parts["controls"]["checks"]]
    return found


def _source(title: str, file: str, data: Mapping[str, Any]) -> dict[str, Any]:
    return {"title": title, "file": file, "command": data["command"], "date": data["date"][:10]}


def _speed(data: Mapping[str, Any]) -> dict[str, Any]:
    categories = {
        name: {field: category[field] for field in SPEED_FIELDS} for name, category in data["categories"].items()
    }
    return {"categories": categories, "geomean_speedup": data["geomean_speedup"]}


def _peers(data: Mapping[str, Any]) -> dict[str, Any]:
    fields = ("version", "prompts", "same_as_plain", "sooner_over_it", "geomean_tok_s", "geomean_end_to_end_tok_s")
    engines = [{"name": name} | {f: engine[f] for f in fields} for name, engine in data["engines"].items()]
    return {"engines": engines, "failed": list(data["failed"].items())}


def _cost(data: Mapping[str, Any]) -> dict[str, Any]:
    passes = [{f: entry[f] for f in ("rows", "context", "ms", "floor_ms")} for entry in data["passes"]]
    return {"passes": passes, "settings": {f: data["settings"][f] for f in ("model", "weights")}}


def _concurrency(data: Mapping[str, Any]) -> dict[str, Any]:
    levels = [
        {
            "concurrency": level["concurrency"],
            "plain_tok_s": level["plain"]["tok_s"],
            "spec_tok_s": level["speculative"]["tok_s"],
            "identical": level["identical"],
        }
        for level in data["levels"]
    ]
    return {"levels": levels}
