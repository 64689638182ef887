"""What `sooner plan` answers: expected speedups with intervals, the best fixed length, and what limits them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sooner.bench.statistics import F64, RESAMPLES, interval, resampled_speedups, speedup
from sooner.draft.protocol import Drafter, Sized
from sooner.plan.replay import PLAIN, Played, Recorded, Replay, Setting, break_even
from sooner.plan.theory import beside

LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16)
ALL = "all"
WORTHWHILE = 1.02  # a predicted speedup below this is no reason to draft
ROUNDS_OF_PLACES = 4  # how often the places in flight are filled
COST_NOISE = 0.02  # of a ratio of pass times, measured apart in time; the table's own spread comes on top


def judge(
    replay: Replay, recorded: Sequence[Recorded], names: Sequence[str], loads: Sequence[int], seed: int
) -> dict[str, Any]:
    """Cells by category and load. end_to_end: with the prompts' passes. speedup: decoding alone for one in flight;
    of several the prompts of some delay the tokens of others, so that only all of the time can be compared."""
    categories = list(dict.fromkeys(one.category for one in recorded))
    cells = []
    for load in loads:
        loaded = replace(replay, concurrency=load)
        for category in dict.fromkeys([*categories, ALL]):
            mine = [one for one in recorded if category in (one.category, ALL)]
            if any(one.length > 1 for one in mine):
                cells.append(cell(loaded, mine, names, seed) | {"category": category, "concurrency": load})
    theory = [beside_replay(replace(replay, concurrency=1), recorded, name) for name in names]
    return {"cells": cells, "theory": theory, "verdict": [sentence(cells, load) for load in loads]}


def beside_replay(replay: Replay, recorded: Sequence[Recorded], name: str) -> dict[str, Any]:
    """The closed forms beside the replay, for one request in flight and the drafter's best fixed length."""
    plain = replay.play(enough(recorded, 1), PLAIN)
    played = {k: replay.play(enough(recorded, 1), Setting(name, k)) for k in LENGTHS}
    gains = {k: speedup(pairs(plain, one)) for k, one in played.items()}
    k = max(gains, key=lambda k: gains[k])
    rounds, accepted = (sum(getattr(one, what) for one in played[k]) for what in ("rounds", "accepted"))
    return beside(replay.costs, recorded, name, k, (rounds + accepted) / rounds, gains[k]) | {"fixed": gains}


def footprint(drafters: Mapping[str, Drafter], token_bytes: int, context: int) -> list[dict[str, Any]]:
    """What each draft takes beside the target: bytes of weights, bytes a token, and of 16 full contexts in the memory
    of the target's keys and values, how many are left."""
    room, found = 16 * context * token_bytes, []
    for name, drafter in drafters.items():
        weights, each = (drafter.weight_bytes, drafter.token_bytes) if isinstance(drafter, Sized) else (0, 0)
        left = max(room - weights, 0) // (context * (token_bytes + each))
        found.append({"drafter": name, "weight_bytes": weights, "token_bytes": each, "contexts_of_16": left})
    return found


def cell(replay: Replay, recorded: Sequence[Recorded], names: Sequence[str], seed: int) -> dict[str, Any]:
    costs, kind, load = replay.costs, replay.kind, replay.concurrency
    count, recorded = len(recorded), enough(recorded, load)
    plain = replay.play(recorded, PLAIN)
    auto = replay.play(recorded, Setting(tokens=None, names=tuple(names)))
    fixed = {
        (name, k): speedup(pairs(plain, replay.play(recorded, Setting(name, k)), load > 1))
        for name in names
        for k in LENGTHS
    }
    foreseen = replay.play(recorded, Setting(names=tuple(names), foresight=True))
    (best_name, best_k), best = max(fixed.items(), key=lambda item: item[1])
    table = pairs(plain, auto, load > 1)
    rounds, drafted, accepted = (sum(getattr(one, what) for one in auto) for what in ("rounds", "drafted", "accepted"))
    choosing = costs.choosing_seconds(kind)
    return {
        "prompts": count,
        "plain_tok_s": float(table[:, 0].sum() / table[:, 1].sum()),
        "speedup": speedup(table),
        "interval": predicted_interval(table, costs.table.spread, seed),
        "end_to_end": speedup(pairs(plain, auto, prefill=True)),
        "tokens_per_round": (rounds + accepted) / rounds if rounds else None,
        "acceptance_rate": accepted / drafted if drafted else None,
        "fixed": {f"{name} {k}": value for (name, k), value in fixed.items()},
        "best_fixed": {"drafter": best_name, "tokens": best_k, "speedup": best},
        "foresight": speedup(pairs(plain, foreseen, load > 1)),
        "break_even": {k: break_even(costs, k, load, choosing, 0.0) for k in (1, 2, 4, 8)},
    }


def pairs(plain: Sequence[Played], other: Sequence[Played], prefill: bool = False) -> F64:
    """[prompts, 4] for `statistics`: plain tokens and seconds, the other's tokens and seconds; copies added up."""
    sums: dict[str, list[float]] = {}
    for at, played in ((0, plain), (2, other)):
        for one in played:
            row = sums.setdefault(one.recorded.id, [0.0] * 4)
            row[at] += one.tokens + prefill
            row[at + 1] += one.seconds + prefill * one.prefill_s
    return np.array([row for row in sums.values() if row[0]], np.float64)


def enough(recorded: Sequence[Recorded], load: int) -> list[Recorded]:
    """The answers, over again until they keep `load` places busy: a few answers alone would never fill them."""
    copies = -(-ROUNDS_OF_PLACES * load // len(recorded)) if load > 1 else 1
    return [replace(one) for _ in range(copies) for one in recorded]


def predicted_interval(table: F64, spread: float, seed: int) -> tuple[float, float] | None:
    """For as many other prompts of the kind and another measurement: these prompts are a sample and the others will be,
    so that two are drawn; costs are uncertain by their spread."""
    others = resampled_speedups(table, seed + 2) / speedup(table)
    noise = np.random.default_rng(seed + 1).lognormal(0.0, np.hypot(COST_NOISE, spread), RESAMPLES)
    return interval(resampled_speedups(table, seed) * others * noise, len(table))


def sentence(cells: Sequence[dict[str, Any]], load: int) -> str:
    """The verdict for a load, as a colleague would put it."""
    whole = next(cell for cell in cells if cell["concurrency"] == load and cell["category"] == ALL)
    flight = f"{load} request{'s' if load > 1 else ''} in flight"
    if whole["speedup"] < WORTHWHILE:
        return f"At {flight} leave drafting off: expect {whole['speedup']:.2f}x; {limit_of(whole)}."
    best, span = whole["best_fixed"], whole["interval"]
    between = f" ({span[0]:.2f} to {span[1]:.2f})" if span else ""
    prompts = f" in decoding, {whole['end_to_end']:.2f}x with prompts" if load == 1 else ""
    return (
        f"At {flight} use --draft-tokens auto: expect {whole['speedup']:.2f}x{between}{prompts}; "
        f"the best fixed setting, {best['drafter']} with {best['tokens']}, "
        f"gives {best['speedup']:.2f}x, foresight {whole['foresight']:.2f}x; {limit_of(whole)}."
    )


def limit_of(whole: dict[str, Any]) -> str:
    """What stands in the way of more: verification's price or what is accepted."""
    rate, need = whole["acceptance_rate"] or 0.0, whole["break_even"][4]
    if need >= 1.0:
        return "verification limits it: four rows cost more than four tokens are worth"
    if rate < need:
        return f"acceptance limits it: four tokens pay from {need:.2f} accepted on, and {rate:.2f} is"
    if whole["speedup"] < WORTHWHILE:
        return f"{rate:.2f} of what is drafted is accepted, but few places have a draft that pays"
    return f"four tokens pay from {need:.2f} accepted on; {rate:.2f} is"
