"""Random arrivals, aborts, settings and lengths with over-committed pages and two drafters, for a while.

    python -m benchmarks.soak --seconds 600 --seed 1

Every finished answer must equal its plain answer, and no page may leak. Prints one JSON line; exit code 1 on a failure.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from dataclasses import dataclass, field

import torch

from sooner.draft.load import load_lookup
from sooner.draft.model import ModelDrafter
from sooner.engine.engine import Engine
from sooner.types import Request, SamplingParams
from tests.support.engines import VOCABULARY, plain, request, tiny_decoder

DRAFTERS = ("small", "suffix", None)


@dataclass(slots=True)
class Soak:
    """One engine under a random load. `failures` names what went wrong; it should stay empty."""

    rng: random.Random
    engine: Engine
    flying: dict[str, tuple[Request, list[int]]] = field(default_factory=dict)
    finished: int = 0
    aborted: int = 0
    failures: list[str] = field(default_factory=list)

    def step(self) -> None:
        if len(self.flying) < 12 and self.rng.random() < 0.4:
            self.arrive()
        if self.flying and self.rng.random() < 0.02:
            self.abort(self.rng.choice(sorted(self.flying)))
        for progress in self.engine.step():
            one, tokens = self.flying[progress.request_id]
            tokens += [piece.token for piece in progress.pieces]
            if progress.finish_reason:
                del self.flying[progress.request_id]
                self.finished += 1
                if tokens != plain(one).tokens:
                    self.failures.append(f"{one} answered {tokens}")
        scheduler = self.engine.scheduler
        self.engine.parts.cache.check_integrity([s.table for s in [*scheduler.running, *scheduler.waiting]])

    def arrive(self) -> None:
        rng = self.rng
        prompt = [rng.randrange(VOCABULARY) for _ in range(rng.choice([1, 3, 17, 40, 90]))]
        if rng.random() < 0.3:
            prompt = [1, 2, 3, 4] * 10 + prompt[:5]  # a prefix that many share
        params = SamplingParams(
            temperature=rng.choice([0.0, 0.7, 1.3]),
            top_k=rng.choice([0, 0, 5]),
            top_p=rng.choice([1.0, 0.9]),
            repetition_penalty=rng.choice([1.0, 1.2]),
            stop_token_ids=(rng.randrange(VOCABULARY),),
            seed=rng.randrange(2**32),
            max_tokens=rng.randrange(60),
        )
        one = request(prompt, params, rng.choice(DRAFTERS), rng.randrange(9))
        self.engine.add(one)
        self.flying[one.id] = (one, [])

    def abort(self, request_id: str) -> None:
        self.engine.abort(request_id)
        del self.flying[request_id]
        self.aborted += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    small = ModelDrafter("small", tiny_decoder(4, 1), VOCABULARY, 64)
    drafters = {"small": small, "suffix": load_lookup("suffix")}
    soak = Soak(random.Random(options.seed), Engine(tiny_decoder(), drafters, cache_tokens=16 * 24, max_rows=48))
    end = time.monotonic() + options.seconds
    while time.monotonic() < end and not soak.failures:
        soak.step()
    for request_id in sorted(soak.flying):
        soak.abort(request_id)
    cache = soak.engine.parts.cache
    if cache.free_pages != cache.pages:
        soak.failures.append(f"{cache.pages - cache.free_pages} pages leaked")
    print(json.dumps({"finished": soak.finished, "aborted": soak.aborted, "failures": soak.failures}))
    sys.exit(bool(soak.failures))


if __name__ == "__main__":
    main()
