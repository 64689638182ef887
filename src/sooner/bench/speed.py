"""Plain against speculative decoding of the same prompts, round by round in turns. Decoding is what comes after a
prompt's first tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sooner.bench.statistics import F64, geometric_interval, geometric_mean, interval, resampled_speedups, speedup
from sooner.bench.turns import Asked, play_pair, warm_up
from sooner.bench.workloads import Prompt
from sooner.engine.engine import Engine
from sooner.engine.stats import Stats
from sooner.errors import InputError
from sooner.llm import LLM
from sooner.types import SamplingParams

RATIO_RULES = ("rejection", "block")  # they keep the distribution, not the tokens of one seed
Progress = Callable[[str], None]


@dataclass(slots=True)
class Comparison:
    """All answers to one prompt, plain and speculative, one of each in a pair."""

    prompt: Prompt
    prompt_tokens: int
    plain: list[Asked] = field(default_factory=list)
    speculative: list[Asked] = field(default_factory=list)


def measure_speed(
    llm: LLM, prompts: Sequence[Prompt], params: SamplingParams, pairs: int, seed: int, progress: Progress
) -> dict[str, Any]:
    """The result of `sooner bench speed`, ready for JSON. `seed` is that of the bootstrap."""
    if pairs < 1:
        raise InputError(f"--pairs is {pairs}, must be at least 1")
    jobs, plain = [(prompt, prompt.token_ids(llm.tokenizer)) for prompt in prompts], llm.plain_engine()
    warm_up(llm, plain, [jobs[0][1]])
    comparisons = []
    for number, (prompt, ids) in enumerate(jobs):
        comparisons.append(compare(llm, plain, prompt, ids, params, pairs, plain_first=number % 2 == 0))
        progress(f"{number + 1}/{len(jobs)} {_line(comparisons[-1])}")
    exact = llm.speculation.rule not in RATIO_RULES
    return report(comparisons, exact, seed) | {"divergences": divergences(llm, comparisons) if exact else []}


def compare(
    llm: LLM,
    plain_engine: Engine,
    prompt: Prompt,
    ids: list[int],
    params: SamplingParams,
    pairs: int,
    plain_first: bool,
) -> Comparison:
    """`pairs` times both ways in turns, with the first turn to each by turns."""
    comparison = Comparison(prompt, len(ids))
    for pair in range(pairs):
        plain, drafted = play_pair(llm, plain_engine, [ids], params, plain_first=plain_first == (pair % 2 == 0))
        comparison.plain += plain.done
        comparison.speculative += drafted.done
    return comparison


def report(comparisons: Sequence[Comparison], exact: bool, seed: int) -> dict[str, Any]:
    names = list(dict.fromkeys(comparison.prompt.category for comparison in comparisons))
    groups = {name: [c for c in comparisons if c.prompt.category == name] for name in names}
    table = {name: category(group, exact, seed) for name, group in groups.items()}
    decoded = {name: pairs for name, group in groups.items() if (pairs := decode_pairs(group)) is not None}
    rates = [table[name]["speedup"] for name in decoded]
    ends = [entry["end_to_end_speedup"] for entry in table.values()]
    return {
        "categories": table,
        "geomean_speedup": geometric_mean(rates) if rates else None,
        "geomean_interval": geometric_interval(decoded, seed) if rates else None,
        "geomean_end_to_end_speedup": geometric_mean(ends),
        "identical": all(entry["identical"] for entry in table.values()) if exact else None,
        "samples": [sample(comparison) for comparison in comparisons],
    }


def category(group: Sequence[Comparison], exact: bool, seed: int) -> dict[str, Any]:
    """One category: rates over its prompts together, each prompt with the median time of its pairs."""
    pairs, total = Stats(), np.array([_medians(c, "total_s") for c in group])
    for comparison in group:
        for run in comparison.speculative:
            pairs.merge(run.stats)
    decode = decode_pairs(group)
    seconds = sum(run.decode_s for comparison in group for run in comparison.speculative)
    return {
        "prompts": len(group),
        "plain_tok_s": None if decode is None else decode[:, 0].sum() / decode[:, 1].sum(),
        "spec_tok_s": None if decode is None else decode[:, 2].sum() / decode[:, 3].sum(),
        "speedup": None if decode is None else speedup(decode),
        "speedup_interval": None if decode is None else interval(resampled_speedups(decode, seed), len(decode)),
        "end_to_end_speedup": speedup(total),
        "tokens_per_round": pairs.tokens_per_round,
        "acceptance_rate": pairs.acceptance_rate,
        "acceptance_by_position": pairs.acceptance_by_position,
        "time_share": _shares(pairs, seconds),
        "identical": all(_same(comparison) for comparison in group) if exact else None,
    }


def decode_pairs(group: Sequence[Comparison]) -> F64 | None:
    """[prompts, 4] for `statistics`, without prompts whose answer ended with its first token; None if all did."""
    pairs = [_medians(c, "decode_s") for c in group if c.plain[0].decode_tokens and c.speculative[0].decode_tokens]
    return np.array(pairs) if pairs else None


def divergences(llm: LLM, comparisons: Sequence[Comparison]) -> list[str]:
    """One line for each prompt whose answers differ: where, and which tokens."""
    return [_divergence(llm, comparison) for comparison in comparisons if not _same(comparison)]


def sample(comparison: Comparison) -> dict[str, Any]:
    """The raw times of one prompt."""

    def raw(run: Asked) -> dict[str, Any]:
        times = {name: getattr(run, name) for name in ("total_s", "decode_s", "decode_tokens")}
        return times | {"tokens": len(run.token_ids), "stats": run.stats.as_dict()}

    return {
        "id": comparison.prompt.id,
        "category": comparison.prompt.category,
        "prompt_tokens": comparison.prompt_tokens,
        "plain": [raw(run) for run in comparison.plain],
        "speculative": [raw(run) for run in comparison.speculative],
    }


def _medians(comparison: Comparison, name: str) -> list[float]:
    """Plain tokens and seconds, speculative tokens and seconds; of sampled lengths that differ, the means count."""
    result: list[float] = []
    for runs in (comparison.plain, comparison.speculative):
        tokens = [run.decode_tokens if name == "decode_s" else len(run.token_ids) for run in runs]
        result += [float(np.mean(tokens)), float(np.median([getattr(run, name) for run in runs]))]
    return result


def _shares(stats: Stats, seconds: float) -> dict[str, float] | None:
    """Of the speculative runs' decoding time: drafting, the target's passes, and everything else."""
    if not seconds:
        return None
    draft, target = stats.draft_s / seconds, stats.target_s / seconds
    return {"draft": draft, "target": target, "rest": 1.0 - draft - target}


def _same(comparison: Comparison) -> bool:
    first = comparison.plain[0].token_ids
    return all(run.token_ids == first for run in comparison.plain + comparison.speculative)


def _divergence(llm: LLM, comparison: Comparison) -> str:
    plain = comparison.plain[0].token_ids
    other = next(r.token_ids for r in comparison.plain + comparison.speculative if r.token_ids != plain)
    at = next((i for i, (a, b) in enumerate(zip(plain, other)) if a != b), min(len(plain), len(other)))

    def shown(tokens: list[int]) -> str:
        return f"{tokens[at]} ({llm.tokenizer.text_of(tokens[at])!r})" if at < len(tokens) else "the end"

    return f"prompt {comparison.prompt.id}: output token {at} is {shown(plain)} plain, {shown(other)} in another run"


def _line(comparison: Comparison) -> str:
    plain_tokens, plain_s, tokens, seconds = _medians(comparison, "decode_s")
    if not plain_tokens or not tokens:
        return f"{comparison.prompt.id}: one token"
    rates = plain_tokens / plain_s, tokens / seconds
    text = (
        f"{comparison.prompt.id}: plain {rates[0]:.1f}, speculative {rates[1]:.1f} tokens/s, {rates[1] / rates[0]:.2f}x"
    )
    return text + ("" if _same(comparison) else ", DIFFERENT TOKENS")
