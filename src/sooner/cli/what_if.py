"""`sooner plan` without a model: `--what-if`, and `--emit` for other engines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sooner.cli.bench import note
from sooner.cli.prompts import read_text
from sooner.errors import InputError

if TYPE_CHECKING:
    from sooner.plan.cost import CostTable
    from sooner.plan.schedule import Situation

LONGEST = 16  # drafted tokens that --what-if looks at
LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16)


def explore(alpha: str, draft_cost: float, verification: str, loads: tuple[int, ...], as_json: bool) -> str:
    """`--what-if`: the theory with costs of the user's own. draft_cost: of one step, over a pass of one row."""
    from sooner.plan.formulas import ceiling
    from sooner.plan.schedule import Situation, free_curve

    chances = numbers("--alpha", alpha)
    path = Path(verification)
    curve = read_curve(path) if path.suffix == ".json" else free_curve(numbers("--verification", verification))
    chances = chances * LONGEST if len(chances) == 1 else chances
    situation = Situation(curve, chances, draft_cost * curve.products(1))
    answers = [what_if_row(situation, load) for load in loads]
    if as_json:
        return json.dumps(answers)
    rate = numbers("--alpha", alpha)
    limit = f"\nHowever long the draft: at most {ceiling(rate[0]):.2f} tokens a round." if len(rate) == 1 else ""
    return what_if_text(answers) + limit


def what_if_row(situation: Situation, load: int) -> dict[str, Any]:
    k = max(range(situation.longest + 1), key=lambda k: situation.speedup(load, k))
    return {
        "concurrency": load,
        "best_length": k,
        "tokens_a_round": situation.tokens(k),
        "speedup": situation.speedup(load, k),
        "break_even": {n: situation.break_even(load, n) for n in (1, 2, 4, 8) if n <= situation.longest},
        "rows_a_token": situation.operations(k),
        "by_length": {n: situation.speedup(load, n) for n in LENGTHS if n <= situation.longest},
    }


def what_if_text(answers: list[dict[str, Any]]) -> str:
    from sooner.bench.tables import markdown

    lengths = list(answers[0]["by_length"])
    rows = [
        [
            str(one["concurrency"]),
            *(f"{one['by_length'][k]:.2f}x" for k in lengths),
            str(one["best_length"]),
            f"{one['speedup']:.2f}x",
            f"{one['tokens_a_round']:.2f}",
            f"{one['rows_a_token']:.2f}",
        ]
        for one in answers
    ]
    titles = [
        "in flight",
        *(f"{k} drafted" for k in lengths),
        "best length",
        "speedup",
        "tokens a round",
        "rows a token",
    ]
    return markdown(titles, rows)


def flags(engine: str, measured: Path | None) -> str:
    """`--emit`: what another engine's server is to be started with."""
    from sooner.plan.schedule import ENGINES, emit, measured_elsewhere

    if engine not in ENGINES:
        raise InputError(f"--emit is {engine!r}, must be {' or '.join(ENGINES)}")
    if measured is None:
        raise InputError("--emit needs --measured FILE, with costs and acceptance measured there; see docs/plan.md")
    try:
        data = json.loads(read_text(measured))
    except ValueError as error:
        raise InputError(f"{measured} is not JSON: {error}") from error
    words = emit(engine, *measured_elsewhere(data, str(measured)))
    if not words:
        note("drafting does not pay there at any batch size: leave it off")
    return words


def numbers(name: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{name} is {text!r}, must be numbers with commas between; for example 0.8,0.7") from None


def read_curve(path: Path) -> CostTable:
    """The pass times of `bench cost` (its shortest context) or of a plan."""
    from sooner.plan.cost import CostTable

    try:
        data = json.loads(read_text(path))
        if "start" in data:
            return CostTable.from_dict(data["start"]["table"])
        shortest = min(entry["context"] for entry in data["passes"])
        passes = {int(e["rows"]): float(e["ms"]) / 1e3 for e in data["passes"] if e["context"] == shortest}
        return CostTable(tuple(sorted(passes)), tuple(passes[rows] for rows in sorted(passes)), head=0.0)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is neither of bench cost nor a plan ({error!r})") from error
