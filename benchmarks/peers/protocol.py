"""What every engine does in its own process: a job on standard input, one JSON line with its times as the last output.

Prompts come as token ids, so that all engines answer exactly the same. Needs nothing but the standard library.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

WARM_UP_TOKENS = 8


@dataclass(frozen=True)
class Job:
    """model: the GGUF file; folder: the same weights for transformers and vLLM, in float32.

    mode: plain, or a way of drafting that the engine knows; amount: its tokens a round (assisted: draft layers), for
    Sooner also "auto". format: of the weights in memory, where the engine can choose. kernels: Sooner's. prompts:
    objects with id, category and tokens.
    """

    model: str
    folder: str
    mode: str
    amount: int | str
    format: str
    kernels: str
    threads: int
    max_tokens: int
    eos: list[int]
    prompts: list[dict[str, Any]]

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt and its answer."""
        return max(len(prompt["tokens"]) for prompt in self.prompts) + self.max_tokens


@dataclass
class Recorder:
    """Notes when tokens come. An end-of-text token ends the answer and is dropped: not all engines return it."""

    eos: Sequence[int]
    tokens: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)  # one for each call of `add`
    counts: list[int] = field(default_factory=list)
    ended: bool = False

    def add(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            if not self.ended and token in self.eos:
                self.ended = True
            elif not self.ended:
                self.tokens.append(token)
        self.times.append(time.perf_counter())
        self.counts.append(len(self.tokens))


Answer = Callable[[list[int], int, Recorder], None]  # prompt, most tokens, where they go


def read_job() -> Job:
    return Job(**json.load(sys.stdin))


def run(job: Job, version: str, answer: Answer) -> None:
    """Answers every prompt once, after a warm-up, and prints the result."""
    answer(job.prompts[0]["tokens"], WARM_UP_TOKENS, Recorder(job.eos))
    results = []
    for prompt in job.prompts:
        recorder, start = Recorder(job.eos), time.perf_counter()
        answer(prompt["tokens"], job.max_tokens, recorder)
        results.append({"id": prompt["id"], "category": prompt["category"]} | timing(recorder, start))
        print(f"{prompt['id']}: {len(recorder.tokens)} tokens", file=sys.stderr, flush=True)
    print("\n" + json.dumps({"version": version, "results": results}), flush=True)


def timing(recorder: Recorder, start: float) -> dict[str, Any]:
    """Decoding is what comes after the first call of `add`, which ends the prefill; it may bring several tokens."""
    first, last = recorder.times[0], recorder.times[-1]
    return {
        "tokens": recorder.tokens,
        "total_s": last - start,
        "decode_s": last - first,
        "decode_tokens": recorder.counts[-1] - recorder.counts[0],
    }


def dump_job(job: Job) -> str:
    return json.dumps(asdict(job))
