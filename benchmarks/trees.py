"""Does a tree of the suffix drafter pay? Recorded answers, played again as chains and as trees under costs of rows.

    python -m benchmarks.trees --prompts FILE --curve results/<machine>/cost/FILE.json --save

A greedy or seeded answer does not depend on its drafts, so every width and threshold is played over the same text. The
best threshold of each width counts. Costs: the measured curve, and passes to which every row adds a fixed share.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import saving
from sooner.bench.workloads import load_prompts
from sooner.draft.protocol import Ask
from sooner.draft.suffix import SuffixDrafter
from sooner.llm import LLM
from sooner.types import Ledger, Request, SamplingParams

WIDTHS = (1, 2, 3)
THRESHOLDS = (0.4, 0.3, 0.2, 0.13, 0.09, 0.06, 0.03)  # chance at which a row is still drafted
LONGEST = 16
SHARES = (0.0, 0.01, 0.03, 0.06)  # of a pass of one row, that each further row adds
Answer = tuple[Request, Sequence[int]]
Rounds = list[tuple[int, int]]  # rows drafted and tokens committed
Curve = Callable[[int], float]  # drafted rows to the pass's time, in passes of one row


def record(llm: LLM, prompts: Sequence[list[int]], params: SamplingParams) -> list[Answer]:
    outputs = llm.generate(prompts, params)
    return [(llm.requests(ids, params)[0], output.token_ids) for ids, output in zip(prompts, outputs)]


def play(answers: Sequence[Answer], width: int, threshold: float) -> Rounds:
    """Every round after the prompts' own passes."""
    drafter = SuffixDrafter(min(threshold * width, 1.0))
    return [one for key, answer in enumerate(answers) for one in rounds_of(drafter, key, answer, width)]


def rounds_of(drafter: SuffixDrafter, key: int, answer: Answer, width: int) -> Iterator[tuple[int, int]]:
    request, tokens = answer
    ledger = Ledger([*request.prompt, *tokens[:1]], len(request.prompt))
    while (done := ledger.output_length) < len(tokens):
        limit = min(LONGEST, len(tokens) - done - 1)
        drafts = drafter.propose([Ask(key, request, ledger, limit, "match", branches=width)]) if limit else []
        drafted, right = sum(map(len, drafts)), sum(len(draft.follow(tokens[done:])) for draft in drafts)
        ledger.tokens += tokens[done : done + right + 1]
        yield drafted, right + 1
    drafter.forget(key)


def curves(path: Path) -> dict[str, Curve]:
    passes = json.loads(path.read_text())["passes"]
    known = {p["rows"]: p["min_ms"] for p in passes if p["context"] == min(one["context"] for one in passes)}
    rows, times = list(known), [ms / known[1] for ms in known.values()]
    measured: dict[str, Curve] = {path.name: lambda drafted: float(np.interp(1 + drafted, rows, times))}
    return measured | {f"{share:.0%} a row": lambda drafted, s=share: 1.0 + s * drafted for share in SHARES}


def best(played: dict[float, Rounds], curve: Curve) -> dict[str, float]:
    """Times plain speed at the best threshold."""
    speeds = {
        threshold: sum(tokens for _, tokens in rounds) / sum(curve(drafted) for drafted, _ in rounds)
        for threshold, rounds in played.items()
    }
    threshold = max(speeds, key=lambda one: speeds[one])
    rounds = played[threshold]
    return {
        "speedup": round(speeds[threshold], 4),
        "threshold": threshold,
        "rows_a_round": round(sum(drafted for drafted, _ in rounds) / len(rounds), 3),
        "tokens_a_round": round(sum(tokens for _, tokens in rounds) / len(rounds), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--weights", default="bf16")
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--curve", type=Path, required=True)
    parser.add_argument("--every", type=int, default=8, help="takes every so many-th prompt")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--save", action="store_true", help="write the result under results/")
    options = parser.parse_args()
    llm = LLM(options.model, weights=options.weights, max_context=2048)
    prompts = [prompt.token_ids(llm.tokenizer) for prompt in load_prompts(options.prompts)[:: options.every]]
    prompts = [ids for ids in prompts if len(ids) + options.tokens <= 1024]
    figures: dict[str, Any] = {"answers": len(prompts)}
    for temperature in (0.0, 0.8):
        answers = record(llm, prompts, SamplingParams(temperature=temperature, seed=1, max_tokens=options.tokens))
        played = {width: {t: play(answers, width, t) for t in THRESHOLDS if t * width <= 1} for width in WIDTHS}
        figures[f"T={temperature:g}"] = {
            name: {f"width {width}": best(played[width], curve) for width in WIDTHS}
            for name, curve in curves(options.curve).items()
        }
    print(json.dumps(figures))
    saving.save("trees", options, figures, llm.decoder.kernels)


if __name__ == "__main__":
    main()
