"""Measures in a few seconds what passes and drafts cost, and keeps the table for the next start.

`sooner bench cost` measures the same more thoroughly, for people; this is what the policy starts from.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import random
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch

from sooner.cache.paged import PagedCache, Table, pages_for
from sooner.draft.protocol import Ask, Drafter, Features
from sooner.kernels.cpu.library import PATH
from sooner.models.decoder import Decoder
from sooner.models.runner import Span, forward
from sooner.models.sizes import formats, multiply_adds, weight_bytes
from sooner.plan.cost import KNOTS, CostTable, DrafterCost, not_falling, roofline
from sooner.types import Draft, Ledger, Request, SamplingParams

SECONDS, LEAST_PASSES = 2.5, 60  # time for the curve, at least so many passes of one row; the drafters come on top
FEWEST = 3  # numbers of rows that are measured whatever it takes
KEYS, KEY_ROWS = 256, (1, 8)  # passes that tell what keys cost
# The fewest and most rows of a pass in each: few are measured often, and of many it is enough to know what each adds.
SWEEPS = ((1, 64), (1, 16), (1, 32), (1, 16), (128, 256), (1, 16), (1, 32), (1, 16), (128, 256))
TOKENS = 4  # of a draft that tells what a further token costs
CROWD = 4  # sequences that tell what a further sequence costs
TRIES = 3
UNKNOWN_SPREAD = 1.0


def prior(decoder: Decoder) -> CostTable:
    """What sizes alone say, for a machine that was not measured."""
    everything = multiply_adds(decoder, 1, 1)
    threads = int(getattr(decoder.kernels, "threads", None) or torch.get_num_threads())
    return roofline(weight_bytes(decoder), everything, head_share(decoder), threads)


def head_share(decoder: Decoder) -> float:
    return multiply_adds(decoder, 0, 1) / multiply_adds(decoder, 1, 1)


def measure(decoder: Decoder, drafters: Mapping[str, Drafter], seconds: float = SECONDS) -> CostTable:
    """Times passes of made-up tokens and proposals of each drafter. The engine's own cache is not touched."""
    bench = Bench(decoder, decoder.new_cache(pages_for(KEYS + max(most for _, most in SWEEPS) + 2)))
    bench.seconds(1)  # the first pass of a process is slow
    seconds = max(seconds, LEAST_PASSES * bench.seconds(1))
    deadline = time.perf_counter() + seconds
    samples: dict[int, list[float]] = {}
    for least, most in SWEEPS:
        for rows in (rows for rows in KNOTS if least <= rows <= min(most, decoder.config.context)):
            if time.perf_counter() < deadline or len(samples) < FEWEST:
                samples.setdefault(rows, []).append(bench.seconds(rows))
    curve = not_falling([_typical(taken) for taken in samples.values()])
    table = CostTable(tuple(samples), tuple(curve), head_share(decoder), spread=_spread(list(samples.values())))
    key, row_key = bench.keys(table)
    return replace(table, key=key, row_key=row_key, drafters=measure_drafters(decoder, drafters))


@dataclass(slots=True)
class Bench:
    decoder: Decoder
    cache: PagedCache

    def seconds(self, rows: int, table: Table | None = None) -> float:
        """One pass as a round plays it: a tail token and a draft, logits for all."""
        table = table or Table()
        start = table.length
        tokens = made_up(self.decoder, rows)
        begin = time.perf_counter()
        forward(self.decoder, self.cache, [Span(table, tokens[:1], Draft.chain(tokens[1:]))])
        taken = time.perf_counter() - begin
        self.cache.truncate(table, start)
        if not start:
            self.cache.release(table)
        return taken

    def keys(self, table: CostTable) -> tuple[float, float]:
        """`CostTable.key` and `row_key`, from two passes over a filled cache."""
        sequence = Table()
        length = min(KEYS, self.decoder.config.context - max(KEY_ROWS))
        forward(self.decoder, self.cache, [Span(sequence, made_up(self.decoder, length), wants=0)])
        few, many = KEY_ROWS
        taken = {rows: _typical([self.seconds(rows, sequence) for _ in SWEEPS]) for rows in KEY_ROWS}
        self.cache.release(sequence)
        extra = {rows: max(seconds - table.products(rows), 0.0) / length for rows, seconds in taken.items()}
        row_key = max(extra[many] - extra[few], 0.0) / (many - few)
        return max(extra[few] - few * row_key, 0.0), row_key


def measure_drafters(decoder: Decoder, drafters: Mapping[str, Drafter]) -> dict[str, DrafterCost]:
    costs = {}
    for number, (name, drafter) in enumerate(drafters.items()):
        try:
            costs[name] = measure_drafter(decoder, drafter, -1 - 1000 * number)
        except Exception as error:  # it is switched off, and named to the user, once a request meets the same
            warnings.warn(f"drafter {name!r} failed while it was measured: {error}", RuntimeWarning, stacklevel=2)
    return costs


def measure_drafter(decoder: Decoder, drafter: Drafter, first_key: int) -> DrafterCost:
    """Proposals as the engine asks for them. Keys count down from first_key: the engine's own count up from 0.

    The drafter's cache may be as small as one context, and all sequences must fit with what they grow by.
    """
    length = min(KEYS, decoder.config.context // (2 * CROWD))
    text = made_up(decoder, length // 4) * 4  # lookups find what repeats
    params = SamplingParams(temperature=0.0)
    asks = [
        Ask(
            first_key - i, Request(f"bench{i}", tuple(text), params, 0, True), Ledger(list(text), len(text)), 1, "match"
        )
        for i in range(CROWD)
    ]
    start = time.perf_counter()
    try:
        for ask in asks:
            show_made_up(drafter, decoder, ask, 0)
        reading = (time.perf_counter() - start) / CROWD
        first = _propose(drafter, decoder, asks[:1]) + reading
        one = _typical([_propose(drafter, decoder, asks[:1]) for _ in range(TRIES)])
        long = _typical([_propose(drafter, decoder, [replace(asks[0], limit=TOKENS)]) for _ in range(TRIES)])
        _propose(drafter, decoder, asks)
        crowd = _typical([_propose(drafter, decoder, asks) for _ in range(TRIES)])
    finally:
        for ask in asks:
            drafter.forget(ask.key)
    return DrafterCost(
        call=one,
        step=max(long - one, 0.0) / (TOKENS - 1),
        sequence=max(crowd - one, 0.0) / (CROWD - 1),
        catch_up=max(first - one, 0.0) / len(text),
    )


def show_made_up(drafter: Drafter, decoder: Decoder, ask: Ask, start: int) -> None:
    """Any features, always the same ones, from position `start` of a ledger on, where the drafter reads features."""
    if isinstance(drafter, Features):
        count = len(ask.ledger) - 1 - start
        random = torch.Generator().manual_seed(start)
        features = torch.randn(count, len(drafter.taps), decoder.config.hidden, generator=random)
        drafter.observe(ask.key, ask.ledger.tokens, start, features.to(decoder.device))


def _propose(drafter: Drafter, decoder: Decoder, asks: Sequence[Ask]) -> float:
    """Seconds of a proposal, after which each ledger grows by a token that was not proposed."""
    start = time.perf_counter()
    drafts = drafter.propose(asks)
    taken = time.perf_counter() - start
    for ask, draft in zip(asks, drafts):
        wrong = draft.tokens[0] if draft else -1
        ask.ledger.tokens.append(next(token for token in ask.ledger.tokens if token != wrong))
        drafter.commit(ask.key, ask.ledger)
        show_made_up(drafter, decoder, ask, len(ask.ledger) - 2)
    return taken


def made_up(decoder: Decoder, count: int) -> list[int]:
    """Any tokens, always the same ones."""
    rng = random.Random(0)
    return [rng.randrange(decoder.config.vocabulary) for _ in range(count)]


def _typical(samples: Sequence[float]) -> float:
    """The mean of the faster half: whoever else used the machine made samples slower, never faster."""
    return fmean(sorted(samples)[: (len(samples) + 1) // 2])


def _spread(samples: Sequence[Sequence[float]]) -> float:
    """By how much samples of the same number of rows lie above the fastest of them, typically."""
    several = [median(taken) / min(taken) - 1.0 for taken in samples if len(taken) > 2]
    return median(several) if several else UNKNOWN_SPREAD


def identity(decoder: Decoder) -> dict[str, Any]:
    """What a table is true of; a change in any of it makes a new table."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": int(getattr(decoder.kernels, "threads", None) or torch.get_num_threads()),
        "device": torch.cuda.get_device_name(decoder.device) if decoder.device.type == "cuda" else "cpu",
        "kernels": decoder.kernels.name,
        "build": _build() if decoder.kernels.name == "cpu" else torch.__version__,
        "model": hashlib.sha256(repr(decoder.config).encode()).hexdigest()[:16],
        "formats": formats(decoder),
        "activations": decoder.kernels.activations,
        "bytes": weight_bytes(decoder),
        "sweeps": [list(sweep) for sweep in SWEEPS],  # as JSON gives it back
    }


def _build() -> list[int]:
    """Tells one build of the C++ kernels from another."""
    library = PATH.stat()
    return [library.st_size, int(library.st_mtime)]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


@dataclass(frozen=True, slots=True)
class Store:
    """Tables on disk, one file for each identity: under SOONER_CACHE, or ~/.cache/sooner."""

    folder: Path

    @classmethod
    def default(cls) -> Store:
        place = os.environ.get("SOONER_CACHE")
        return cls((Path(place) if place else Path.home() / ".cache" / "sooner") / "costs")

    def path(self, what: Mapping[str, Any]) -> Path:
        name = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:20]
        return self.folder / f"{name}.json"

    def load(self, what: Mapping[str, Any]) -> CostTable | None:
        """None where there is none, or none that this version can read."""
        try:
            data = json.loads(self.path(what).read_text(encoding="utf-8"))
            return CostTable.from_dict(data["table"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def save(self, what: Mapping[str, Any], table: CostTable) -> None:
        path = self.path(what)
        text = json.dumps({"of": dict(what), "table": table.as_dict()}, indent=1)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            scratch = path.with_suffix(f".{os.getpid()}")
            scratch.write_text(text + "\n", encoding="utf-8")
            scratch.replace(path)
        except OSError as error:
            warnings.warn(
                f"costs were measured but cannot be kept: {error}; set SOONER_CACHE", RuntimeWarning, stacklevel=2
            )


def costs_for(decoder: Decoder, drafters: Mapping[str, Drafter], store: Store | None = None) -> CostTable:
    """The stored table; drafters that it lacks are measured now, and all of it again where it is noisy."""
    store, what = store or Store.default(), identity(decoder)
    known = store.load(what)
    table = measure(decoder, drafters) if known is None or known.noisy else known
    if known is not None and known.spread < table.spread:
        table = known
    table = with_drafters(table, decoder, drafters)
    if table != known:
        store.save(what, table)
    return table


def with_drafters(table: CostTable, decoder: Decoder, drafters: Mapping[str, Drafter]) -> CostTable:
    """The table, with those of `drafters` that it lacks measured now."""
    missing = {name: drafter for name, drafter in drafters.items() if name not in table.drafters}
    if not missing:
        return table
    return replace(table, drafters={**table.drafters, **measure_drafters(decoder, missing)})


def drop_costs(decoder: Decoder, store: Store | None = None) -> None:
    """Forgets a stored table that proved wrong, so that the next start measures again."""
    (store or Store.default()).path(identity(decoder)).unlink(missing_ok=True)
