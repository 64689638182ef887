"""What whole target passes and drafts cost, against the floor that bandwidth and arithmetic set."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from statistics import median
from typing import Any

from sooner.bench import machine
from sooner.bench.overhead import PLAYED, outside_kernels
from sooner.bench.statistics import summary
from sooner.bench.workloads import load_prompts
from sooner.cache.paged import Table
from sooner.draft.protocol import Ask
from sooner.engine.calibrate import show_made_up
from sooner.engine.judge import prefix
from sooner.errors import InputError
from sooner.llm import LLM
from sooner.models.decoder import Decoder
from sooner.models.runner import Span, forward
from sooner.models.sizes import multiply_adds, weight_bytes
from sooner.sampling.noise import Noise
from sooner.sampling.road import Road
from sooner.types import Draft, Ledger, Request, SamplingParams

DRAFT_LENGTHS = (1, 4, 8)
PREFILL_ROWS = 512
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure. rows: of a pass, all with logits; contexts: keys that the first row finds in the cache."""

    rows: tuple[int, ...]
    contexts: tuple[int, ...]
    repeats: int

    def __post_init__(self) -> None:
        for name, values in (("--rows", self.rows), ("--context", self.contexts), ("--repeats", (self.repeats,))):
            if not values or min(values) < 1:
                raise InputError(f"{name} is {', '.join(map(str, values)) or 'empty'}, must be at least 1")

    @property
    def room(self) -> int:
        """The longest sequence that is played: a context and what follows it, or the prefill."""
        beyond = max(*self.rows, self.repeats + max(DRAFT_LENGTHS), PLAYED)
        return max(max(self.contexts) + beyond, PREFILL_ROWS) + 1


def measure_cost(llm: LLM, plan: Plan, progress: Progress) -> dict[str, Any]:
    """The result of `sooner bench cost`, ready for JSON. The model's context must hold `plan.room` tokens."""
    bench = Bench(llm, filler(llm, plan.room))
    bench.pass_seconds(Table(), 1)  # the first pass of a process is slow
    memory = resident(llm.decoder)
    progress("read bandwidth and peak")
    probe = machine.ReadProbe(llm.decoder.kernels)
    peak_gflops = machine.peak_gflops(llm.decoder.kernels)
    samples, rates = time_passes(bench, plan, probe, progress)
    read_gbs, best_gbs = median(rates), max(probe.best_gbs, *rates)
    del probe
    progress("drafters, prefill, and what is outside kernels")
    return {
        "read_gbs": read_gbs,
        "best_read_gbs": best_gbs,
        "peak_gflops": peak_gflops,
        "weight_bytes": weight_bytes(llm.decoder),
        "multiply_adds_per_row": multiply_adds(llm.decoder, 1, 1),
        "passes": [
            {"rows": rows, "context": context}
            | against_floor(taken, floor_ms(llm.decoder, rows, read_gbs, peak_gflops))
            for (context, rows), taken in samples.items()
        ],
        "drafters": [
            drafter_cost(bench, name, context, length, plan.repeats)
            for name in llm.speculation.drafters
            for context in plan.contexts
            for length in DRAFT_LENGTHS
        ],
        "prefill": prefill(bench, peak_gflops),
        "outside": outside_kernels(llm, bench.text[: plan.contexts[0]]),
        "memory": memory,
    }


@dataclass(slots=True)
class Bench:
    """A loaded model and text enough to fill every context."""

    llm: LLM
    text: list[int]
    keys: count[int] = field(default_factory=lambda: count(1 << 40))  # far from the engine's own

    def fill(self, table: Table, length: int) -> None:
        """Reads the text up to `length`, in chunks."""
        parts = self.llm.engine.parts
        while table.length < length:
            chunk = self.text[table.length : min(length, table.length + PREFILL_ROWS)]
            forward(parts.decoder, parts.cache, [Span(table, chunk, wants=False)])

    def pass_seconds(self, table: Table, rows: int) -> float:
        """One pass as a round plays it: one tail token and a draft, logits and a choice for every row, rollback."""
        parts, start = self.llm.engine.parts, table.length
        draft = Draft.chain(self.text[start + 1 : start + rows])
        ledger = self.text[: start + 1]
        begin = time.perf_counter()
        logits = forward(parts.decoder, parts.cache, [Span(table, ledger[-1:], draft)])[0]
        for node in range(-1, rows - 1):
            GREEDY.choose(logits[node + 1], prefix(ledger, draft, node), NOISE)
        parts.cache.truncate(table, start)
        return time.perf_counter() - begin


GREEDY = Road(SamplingParams(temperature=0.0), prompt_length=0)
NOISE = Noise(0)


def filler(llm: LLM, length: int) -> list[int]:
    """Our own prompts one after the other, over again where they are too short."""
    text = [token for prompt in load_prompts(None) for token in prompt.token_ids(llm.tokenizer)]
    return (text * (length // len(text) + 1))[: length + 1]


def time_passes(
    bench: Bench, plan: Plan, probe: machine.ReadProbe, progress: Progress
) -> tuple[dict[tuple[int, int], list[float]], list[float]]:
    """Milliseconds by (context, rows), and GB/s. Within a round all row counts and the probe take their turn, so that
    drifts of the machine hit all alike: on a shared one the bandwidth of another minute says nothing."""
    samples: dict[tuple[int, int], list[float]] = {}
    rates: list[float] = []
    table = Table()
    for context in sorted(plan.contexts):
        progress(f"passes at context {context}")
        bench.fill(table, context)
        for rows in plan.rows:
            bench.pass_seconds(table, rows)
        for number in range(plan.repeats):
            rates.append(probe.gbs())
            bench.pass_seconds(table, 1)  # the probe has emptied the caches; decoding has its own code in them
            for rows in plan.rows if number % 2 == 0 else plan.rows[::-1]:
                samples.setdefault((context, rows), []).append(1e3 * bench.pass_seconds(table, rows))
    bench.llm.engine.parts.cache.release(table)
    return samples, rates


def against_floor(taken: Sequence[float], floor: float) -> dict[str, Any]:
    """Median, minimum and samples in milliseconds, and both as multiples of the floor."""
    figures = summary(taken)
    return {"floor_ms": floor, "ratio": figures["ms"] / floor, "min_ratio": figures["min_ms"] / floor} | figures


def floor_ms(decoder: Decoder, rows: int, read_gbs: float, peak_gflops: float) -> float:
    """No pass of this machine can be faster: every weight is read once, and every multiply-add done.

    Keys and values are left out: the floor is the same for every context.
    """
    reading = weight_bytes(decoder) / read_gbs / 1e6
    arithmetic = 2 * multiply_adds(decoder, rows, rows) / peak_gflops / 1e6
    return max(reading, arithmetic)


def drafter_cost(bench: Bench, name: str, context: int, length: int, repeats: int) -> dict[str, Any]:
    """Milliseconds of propose and of commit at one more token a round, as after a draft that was rejected whole.

    first_ms: the first proposal of a sequence, which reads the whole context.
    """
    drafter = bench.llm.engine.parts.drafters[name]
    ledger = Ledger(bench.text[:context], context)
    request = Request("bench", tuple(ledger.tokens), SamplingParams(temperature=0.0), seed=0, seeded=True)
    ask = Ask(next(bench.keys), request, ledger, length, "match")
    proposing, committing, proposed = [], [], []
    decoder, seen = bench.llm.decoder, 0
    for token in bench.text[context : context + repeats + 1]:
        show_made_up(drafter, decoder, ask, seen)
        seen = len(ledger) - 1
        start = time.perf_counter()
        (draft,) = drafter.propose([ask])
        proposing.append(1e3 * (time.perf_counter() - start))
        proposed.append(len(draft))
        ledger.tokens.append(token)
        start = time.perf_counter()
        drafter.commit(ask.key, ledger)
        committing.append(1e3 * (time.perf_counter() - start))
    drafter.forget(ask.key)
    return {
        "drafter": name,
        "context": context,
        "draft_tokens": length,
        "first_ms": proposing[0],
        **summary(proposing[1:]),
        "commit_ms": summary(committing[1:])["ms"],
        "proposed": sum(proposed) / len(proposed),
    }


def prefill(bench: Bench, peak_gflops: float, repeats: int = 5) -> dict[str, Any]:
    """One pass over a prompt of 512 tokens with the logits of its last. Its operations are products and attention."""
    parts = bench.llm.engine.parts
    taken = []
    for _ in range(repeats):
        table = Table()
        start = time.perf_counter()
        forward(parts.decoder, parts.cache, [Span(table, bench.text[:PREFILL_ROWS])])
        taken.append(1e3 * (time.perf_counter() - start))
        parts.cache.release(table)
    c = parts.decoder.config
    attention = c.layers * c.heads * c.head_size * PREFILL_ROWS * (PREFILL_ROWS + 1)  # q k and p v, causal
    operations = 2 * (multiply_adds(parts.decoder, PREFILL_ROWS, 1) + attention)
    figures = summary(taken)
    share = operations / (figures["ms"] * 1e6) / peak_gflops
    return {"rows": PREFILL_ROWS, "gflop": operations / 1e9, "share_of_peak": share} | figures


def resident(decoder: Decoder) -> dict[str, Any]:
    """Resident memory in MB (1e6) after loading and a pass, beside the weights and a process with torch alone."""
    now, weights, bare = machine.memory_mb(), decoder.nbytes / 1e6, machine.bare_torch_mb()
    taken = None if bare is None or "resident" not in now else now["resident"] - bare
    return {
        "resident_mb": now.get("resident"),
        "highest_mb": now.get("highest"),
        "bare_torch_mb": bare,
        "weights_mb": weights,
        "over_bare_mb": taken,
        "limit_mb": 1.4 * weights + 150.0,
    }
