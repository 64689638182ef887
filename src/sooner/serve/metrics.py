"""Prometheus: what vLLM's dashboards look for, under `sooner:`, and what tells whether drafting pays.

The engine's thread writes, a scrape reads. Counts of rounds are kept as one `Stats` and turned into metrics only when
they are asked for, since a step has many rounds and a scrape comes every few seconds.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sooner.engine.engine import Engine, Progress
from sooner.engine.planner import PREFILL
from sooner.engine.stats import Stats
from sooner.serve.plain import PlainCost
from sooner.types import Request, RoundRecord

disable_created_metrics()  # type: ignore[no-untyped-call]

SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 2.5, 5, 10, 40)
LONG = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 20, 30, 60, 120, 240, 480, 960)
NUMBER = re.compile(r"\d+(\.\d+)?")
SIZES = tuple(float(2**i) for i in range(16))
HISTOGRAMS = {
    "time_to_first_token_seconds": ("from a request's arrival to its first token", SHORT),
    "inter_token_latency_seconds": ("between tokens; those of one round share its time", SHORT),
    "request_time_per_output_token_seconds": ("mean of a request after its first token", SHORT),
    "e2e_request_latency_seconds": ("from arrival to the last token", LONG),
    "request_queue_time_seconds": ("waiting for a place", LONG),
    "request_prefill_time_seconds": ("from the first pass to the first token", LONG),
    "request_decode_time_seconds": ("from the first token to the last", LONG),
    "request_inference_time_seconds": ("from the first pass to the last token", LONG),
    "request_prompt_tokens": ("prompt tokens of a request", SIZES),
    "request_generation_tokens": ("committed tokens of a request", SIZES),
    "request_params_n": ("samples that were asked for", SIZES[:8]),
    "request_params_max_tokens": ("the limit that was asked for", SIZES),
    "iteration_tokens_total": ("committed tokens of a step", SIZES),
}


@dataclass(slots=True)
class Flight:
    """A request's times on time.perf_counter's clock."""

    request: Request
    arrived: float
    started: float = 0.0
    first: float = 0.0
    last: float = 0.0
    tokens: int = 0


class Monitor(Collector):
    """Everything that /metrics shows of one engine."""

    def __init__(self, name: str) -> None:
        self.registry = CollectorRegistry()
        self.total = Stats()
        self.plain = PlainCost()
        self.finished: Counter[str] = Counter()
        self.plain_reasons: Counter[str] = Counter()
        self.hits = 0
        self._labels = {"model_name": name}
        self._engine: Engine | None = None
        self._flights: dict[str, Flight] = {}
        self._records: list[RoundRecord] = []
        self._began = 0.0
        self._histograms = {
            key: Histogram(f"sooner:{key}", text, list(self._labels), buckets=buckets, registry=self.registry).labels(
                name
            )
            for key, (text, buckets) in HISTOGRAMS.items()
        }
        self.registry.register(self)
        ProcessCollector(registry=self.registry)  # memory and processor time

    def page(self) -> bytes:
        return generate_latest(self.registry)

    def watch(self, engine: Engine) -> None:
        self._engine = engine
        engine.trace = self._records.append

    def arrives(self, request: Request, at: float) -> None:
        self._flights[request.id] = Flight(request, at)
        self._observe("request_params_n", request.params.n)
        self._observe("request_params_max_tokens", request.max_tokens)

    def aborted(self, request_id: str) -> None:
        if self._flights.pop(request_id, None):
            self.finished["abort"] += 1

    def step_begins(self) -> None:
        self._began = time.perf_counter()

    def step_ends(self, news: Sequence[Progress]) -> None:
        now, records = time.perf_counter(), self._records.copy()
        self._records.clear()
        self.plain.learn(records)
        for record in records:
            self._count(record)
        if news:
            self._observe("iteration_tokens_total", sum(len(progress.pieces) for progress in news))
        for progress in news:
            if flight := self._flights.get(progress.request_id):
                self._follow(flight, progress, now)

    def _count(self, record: RoundRecord) -> None:
        if record.reason == PREFILL:
            self.total.add_prefill(record)
        else:
            self.total.add(record)
            if not record.draft:
                self.plain_reasons[NUMBER.sub("N", record.reason)] += 1  # a label must not have a value a round

    def _follow(self, flight: Flight, progress: Progress, now: float) -> None:
        flight.started = flight.started or self._began
        if progress.pieces:
            self._follow_tokens(flight, len(progress.pieces), now)
        if progress.finish_reason:
            del self._flights[progress.request_id]
            self._finish(flight, progress, now)

    def _follow_tokens(self, flight: Flight, count: int, now: float) -> None:
        if not flight.tokens:
            flight.first = now
            self._observe("time_to_first_token_seconds", now - flight.arrived)
        else:
            for _ in range(count):
                self._observe("inter_token_latency_seconds", (now - flight.last) / count)
        flight.last = now
        flight.tokens += count

    def _finish(self, flight: Flight, progress: Progress, now: float) -> None:
        self.finished[str(progress.finish_reason)] += 1
        self.hits += progress.stats.cached_tokens
        self.total.prompt_tokens += len(flight.request.prompt)
        first = flight.first or now
        self._observe("e2e_request_latency_seconds", now - flight.arrived)
        self._observe("request_queue_time_seconds", flight.started - flight.arrived)
        self._observe("request_prefill_time_seconds", first - flight.started)
        self._observe("request_decode_time_seconds", now - first)
        self._observe("request_inference_time_seconds", now - flight.started)
        self._observe("request_prompt_tokens", len(flight.request.prompt))
        self._observe("request_generation_tokens", flight.tokens)
        if flight.tokens > 1:
            self._observe("request_time_per_output_token_seconds", (now - first) / (flight.tokens - 1))

    def _observe(self, name: str, value: float) -> None:
        self._histograms[name].observe(value)

    def collect(self) -> Iterator[Metric]:
        """Called by a scrape."""
        total, drafts = self.total, self.total.drafted_by_length
        counters = {
            "prompt_tokens": ("prompt tokens of ended requests", total.prompt_tokens),
            "generation_tokens": ("committed tokens", total.output_tokens),
            "prefix_cache_queries": ("prompt tokens that were looked up", total.prompt_tokens),
            "prefix_cache_hits": ("prompt tokens that were found", self.hits),
            "spec_decode_num_drafts": ("drafts", total.rounds - drafts[0]),
            "spec_decode_num_draft_tokens": ("drafted tokens", total.drafted),
            "spec_decode_num_accepted_tokens": ("accepted tokens", total.accepted),
            "rounds": ("rounds of sequences, without prompts", total.rounds),
            "draft_seconds": ("in drafters", total.draft_s),
            "target_seconds": ("in target passes of rounds", total.target_s),
            "verify_seconds": ("choosing and verifying", total.verify_s),
            "commit_seconds": ("committing", total.commit_s),
            "prefill_seconds": ("in passes over prompts", total.prefill_s),
            "estimated_plain_seconds": ("what plain rounds would have taken for the same tokens", self.plain.seconds),
        }
        for name, (text, value) in counters.items():
            yield self._counter(name, text, [((), value)])
        yield self._counter("request_success", "ended requests", by_label(self.finished), "finished_reason")
        yield self._counter("plain_rounds", "rounds without a draft", by_label(self.plain_reasons), "reason")
        name, text = "spec_decode_num_accepted_tokens_per_pos", "accepted drafted tokens by position"
        yield self._counter(name, text, by_position(total.accepted_by_length), "position")
        yield from self._gauges()

    def _gauges(self) -> Iterator[Metric]:
        if not self._engine:
            return
        cache, scheduler = self._engine.parts.cache, self._engine.scheduler
        gauges = {
            "num_requests_running": ("in the batch", len(scheduler.running)),
            "num_requests_waiting": ("waiting for a place or for pages", len(scheduler.waiting)),
            "kv_cache_usage_perc": ("share of pages in use, 1 is full", 1 - cache.free_pages / cache.pages),
            "kv_cache_pages": ("pages", cache.pages),
            "kv_cache_free_pages": ("free pages", cache.free_pages),
        }
        for name, (text, value) in gauges.items():
            family = GaugeMetricFamily(f"sooner:{name}", text, labels=list(self._labels))
            family.add_metric(list(self._labels.values()), value)
            yield family
        preempted = self._engine.preemptions
        yield self._counter("num_preemptions", "requests that gave up their pages", [((), preempted)])

    def _counter(self, name: str, text: str, values: Iterable[tuple[tuple[str, ...], float]], *labels: str) -> Metric:
        family = CounterMetricFamily(f"sooner:{name}", text, labels=[*self._labels, *labels])
        for own, value in values:
            family.add_metric([*self._labels.values(), *own], value)
        return family


def by_label(counts: Counter[str]) -> list[tuple[tuple[str, ...], float]]:
    return [((key,), value) for key, value in sorted(counts.items())]


def by_position(accepted_by_length: Counter[int]) -> list[tuple[tuple[str, ...], float]]:
    """How many rounds accepted more than i tokens, for each i."""
    longest = max(accepted_by_length, default=0)
    at_least = list(accumulate(accepted_by_length[length] for length in range(longest, 0, -1)))[::-1]
    return [((str(i),), count) for i, count in enumerate(at_least)]
