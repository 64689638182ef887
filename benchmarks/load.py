"""A server under load: Poisson arrivals of mixed requests from many clients, a third of whom leave early.

    python -m benchmarks.load --seconds 60 --rate 2 --seed 1

starts `sooner serve` with two drafters and too few pages for everybody. Afterwards no answer may have been a 5xx, every
seeded answer must equal its plain answer, and no page may be missing. Prints one JSON line; exit code 1 on a failure.
With --speculative false nothing is drafted: two runs show what drafting does to the latencies.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from statistics import quantiles
from typing import Any

import httpx2 as httpx

from benchmarks import saving
from benchmarks.serving import Served, serving

CLIENTS = 64
KV_MIB = 60
TEXTS = (
    "What is the capital of France?",
    "Repeat three times: the quick brown fox jumps over the lazy dog.",
    "List the numbers from one to thirty.",
    "Explain in two sentences why the sky is blue.",
    "Correct and repeat: Teh cat sat on teh mat, and teh dog sat on teh rug, and teh bird sang.",
    "Write a short story about a lighthouse. " + "The sea was calm that night. " * 20,
)
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False},
}


@dataclass(slots=True)
class Seen:
    """What the clients saw. Seconds; gaps are between pieces, each a round's tokens."""

    statuses: Counter[int] = field(default_factory=Counter)
    first: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    seeded: list[tuple[dict[str, Any], str]] = field(default_factory=list)
    left: int = 0
    tokens: int = 0
    failures: list[str] = field(default_factory=list)


def draw(rng: random.Random, speculative: bool) -> dict[str, Any]:
    """A request; its own seed makes the answer repeatable."""
    text = rng.choice(TEXTS)
    body: dict[str, Any] = {
        "prompt": f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n",
        "max_tokens": rng.choice([8, 24, 48, 96]),
        "temperature": rng.choice([0.0, 0.7, 1.0]),
        "top_p": rng.choice([1.0, 0.9]),
        "repetition_penalty": rng.choice([1.0, 1.1]),
        "seed": rng.randrange(2**31),
        "n": rng.choice([1, 1, 1, 2]),
    }
    body |= rng.choice([{}, {}, {"stop": ["\n"]}, {"structured_outputs": {"json": SCHEMA}}, {"logprobs": 2}])
    drafts = [True, {"drafter": "suffix", "draft_tokens": 3}, {"drafter": "ngram"}, {"draft_tokens": "auto"}]
    return body | {"speculative": rng.choice(drafts) if speculative else False}


async def client(url: str, body: dict[str, Any], leaves_after: float | None, seen: Seen) -> None:
    """One streamed call; some clients leave after a while."""
    began = last = time.perf_counter()
    texts: dict[int, str] = {}
    options = {"stream": True, "stream_options": {"include_usage": True}}
    async with (
        asyncio.timeout(leaves_after),
        httpx.AsyncClient(timeout=600) as http,
        http.stream("POST", f"{url}/v1/completions", json=body | options) as answer,
    ):
        seen.statuses[answer.status_code] += 1
        if answer.status_code != 200:
            return
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            now, piece = time.perf_counter(), json.loads(line[6:])
            if "error" in piece:
                seen.statuses[500] += 1
                seen.failures.append(piece["error"]["message"])
            elif piece["choices"]:
                (seen.gaps if texts else seen.first).append(now - (last if texts else began))
                last = now
                index = piece["choices"][0]["index"]
                texts[index] = texts.get(index, "") + piece["choices"][0]["text"]
            else:
                seen.tokens += piece["usage"]["completion_tokens"]
    seen.seeded.append((body, json.dumps([texts[i] for i in sorted(texts)])))


async def load(url: str, options: argparse.Namespace, seen: Seen) -> None:
    """Arrivals until the time is over, then waits for the last answer. No more than CLIENTS are there at once."""
    rng, tasks, end = random.Random(options.seed), set[asyncio.Task[None]](), time.monotonic() + options.seconds
    places = asyncio.Semaphore(CLIENTS)

    async def one(body: dict[str, Any], leaves_after: float | None) -> None:
        async with places:
            try:
                await client(url, body, leaves_after, seen)
            except TimeoutError:
                seen.left += 1
            except httpx.HTTPError as error:
                seen.failures.append(repr(error))

    while time.monotonic() < end:
        body = draw(rng, options.speculative)
        leaves_after = rng.random() * 4 if rng.random() < 1 / 3 else None
        tasks.add(task := asyncio.create_task(one(body, leaves_after)))
        task.add_done_callback(tasks.discard)
        await asyncio.sleep(rng.expovariate(options.rate))
    await asyncio.gather(*tasks)


def check(served: Served, seen: Seen, compared: int) -> dict[str, float]:
    """Fills in seen.failures; returns the server's metrics at rest."""
    for body, texts in random.Random(0).sample(seen.seeded, min(compared, len(seen.seeded))):
        plain = served.complete(body | {"speculative": False})
        if json.dumps([choice["text"] for choice in plain["choices"]]) != texts:
            seen.failures.append(f"{body} answered {texts}")
    values = served.metrics()
    if missing := values["sooner:kv_cache_pages"] - values["sooner:kv_cache_free_pages"]:
        seen.failures.append(f"{missing:.0f} pages are missing")
    if errors := sum(count for status, count in seen.statuses.items() if status >= 500):
        seen.failures.append(f"{errors} answers were 5xx")
    return values


def percentiles(values: list[float]) -> dict[str, float] | None:
    if len(values) < 2:
        return None
    cuts = quantiles(values, n=100, method="inclusive")
    return {"p50": round(cuts[49], 4), "p99": round(cuts[98], 4)}


def run(options: argparse.Namespace) -> dict[str, Any]:
    limits = ["--kv-memory", str(KV_MIB), "--max-context", "1024", "--max-queue", str(CLIENTS)]
    with serving(options.model, ["--draft", options.draft, *limits]) as served:
        served.complete({"prompt": "a", "max_tokens": 4})
        before, seen = served.metrics(), Seen()
        asyncio.run(load(served.url, options, seen))
        middle = served.metrics()
        after = check(served, seen, options.compared)
    memory = [round(m["process_resident_memory_bytes"] / 2**20) for m in (before, middle, after)]
    return {
        "ready_s": round(served.ready_s, 2),
        "statuses": dict(seen.statuses),
        "left_early": seen.left,
        "answered": len(seen.seeded),
        "compared_with_plain": min(options.compared, len(seen.seeded)),
        "tokens": seen.tokens,
        "time_to_first_token_s": percentiles(seen.first),
        "between_pieces_s": percentiles(seen.gaps),
        "preemptions": after["sooner:num_preemptions_total"],
        "accepted": after["sooner:spec_decode_num_accepted_tokens_total"],
        "rounds": after["sooner:rounds_total"],
        "memory_mb": dict(zip(("start", "load", "end"), memory)),
        "failures": seen.failures,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--draft", default="suffix,ngram")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=float, default=1.5, help="arrivals a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--speculative", type=json.loads, default=True)
    parser.add_argument("--compared", type=int, default=20, help="seeded answers that are asked for again, plainly")
    parser.add_argument("--save", action="store_true", help="write the result under results/")
    options = parser.parse_args()
    figures = run(options)
    print(json.dumps(figures))
    saving.save("serve", options, {"load": figures}, seed=options.seed)
    sys.exit(bool(figures["failures"]))


if __name__ == "__main__":
    main()
