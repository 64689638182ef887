"""From the runs of all engines to one comparison: pure arithmetic over what the processes printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.peers.engines import parse
from sooner.bench.statistics import geometric_mean

Runs = Sequence[Mapping[str, Any]]  # of one engine; each has `version` and `results`, one a prompt


def compare(runs: Mapping[str, Runs], failed: Mapping[str, str]) -> dict[str, Any]:
    """The `peers` result: rates by category and their geometric means, Sooner's best mode over each, raw samples."""
    engines = {text: summarise(mine, plain_of(text, runs)) for text, mine in runs.items()}
    ours = [entry for text, entry in engines.items() if parse(text).name == "sooner"]
    best = max(ours, key=lambda entry: float(entry["geomean_tok_s"]), default=None)
    for entry in engines.values():
        entry["sooner_over_it"] = None if best is None else over(best, entry)
    return {"engines": engines, "failed": dict(failed), "samples": {text: list(mine) for text, mine in runs.items()}}


def plain_of(text: str, runs: Mapping[str, Runs]) -> Runs:
    """The runs of the same engine and format without a draft; its own where there are none."""
    mine = parse(text)
    for other in map(parse, runs):
        if other.is_plain and (other.name, other.format) == (mine.name, mine.format):
            return runs[other.text]
    return runs[text]


def summarise(runs: Runs, plain: Runs) -> dict[str, Any]:
    """Tokens a second by category, each prompt with its median time over the runs."""
    prompts = list(zip(*(run["results"] for run in runs), strict=True))
    names = dict.fromkeys(entries[0]["category"] for entries in prompts)
    groups = {name: [entries for entries in prompts if entries[0]["category"] == name] for name in names}
    decode = {name: rate(group, "decode_tokens", "decode_s") for name, group in groups.items()}
    total = {name: rate(group, "tokens", "total_s") for name, group in groups.items()}
    answers = [entry["tokens"] for entry in plain[0]["results"]]
    same = [
        all(entry["tokens"] == answer for entry in entries) for entries, answer in zip(prompts, answers, strict=True)
    ]
    return {
        "version": runs[0]["version"],
        "prompts": len(prompts),
        "same_as_plain": sum(same),
        "tok_s": decode,
        "end_to_end_tok_s": total,
        "geomean_tok_s": geometric_mean(list(decode.values())),
        "geomean_end_to_end_tok_s": geometric_mean(list(total.values())),
    }


def rate(group: Sequence[Sequence[Mapping[str, Any]]], tokens: str, seconds: str) -> float:
    """group[prompt][run]. Tokens of all prompts over the sum of their median seconds."""

    def amount(entry: Mapping[str, Any]) -> int:
        return len(entry[tokens]) if tokens == "tokens" else int(entry[tokens])

    taken = sum(float(median(entry[seconds] for entry in entries)) for entries in group)
    return sum(amount(entries[0]) for entries in group) / taken


def over(best: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    return geometric_mean([best["tok_s"][name] / value for name, value in other["tok_s"].items()])
