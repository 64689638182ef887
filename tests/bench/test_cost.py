from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sooner.bench import cost, machine
from sooner.bench.cost import Plan, floor_ms, measure_cost
from sooner.bench.overhead import Clock, Clocked
from sooner.cache.paged import Table
from sooner.errors import InputError
from sooner.llm import LLM
from sooner.models.decoder import Decoder
from sooner.models.sizes import multiply_adds, weight_bytes


def decoder_of(layers: int) -> Decoder:
    """A decoder with 2 MB in each layer (four matrices of 1 M multiply-adds) and 3 MB in the head."""
    matrix = SimpleNamespace(shape=(1000, 1000), nbytes=500_000)
    layer = SimpleNamespace(matrices=[matrix] * 4)
    head = SimpleNamespace(shape=(3000, 1000), nbytes=3_000_000)
    return cast(Decoder, SimpleNamespace(layers=[layer] * layers, head=head, embed=SimpleNamespace(nbytes=1 << 40)))


def test_floor_is_reading_for_few_rows_and_arithmetic_for_many() -> None:
    decoder = decoder_of(layers=2)
    assert weight_bytes(decoder) == 7_000_000  # the embedding is looked up, not read
    assert multiply_adds(decoder, rows=10, logits=1) == 10 * 8_000_000 + 3_000_000
    # 7 MB at 10 GB/s: 0.7 ms. 11 M multiply-adds a row at 100 GFLOP/s: 0.22 ms.
    assert floor_ms(decoder, 1, read_gbs=10, peak_gflops=100) == pytest.approx(0.7)
    assert floor_ms(decoder, 3, read_gbs=10, peak_gflops=100) == pytest.approx(0.7)
    assert floor_ms(decoder, 4, read_gbs=10, peak_gflops=100) == pytest.approx(0.88)
    assert floor_ms(decoder, 64, read_gbs=10, peak_gflops=100) == pytest.approx(64 * 0.22)


@pytest.mark.parametrize("wrong", [((), (1,), 1), ((1, 0), (1,), 1), ((1,), (0,), 1), ((1,), (1,), 0)])
def test_a_plan_refuses_nothing_and_less(wrong: Any) -> None:
    with pytest.raises(InputError, match="must be at least 1"):
        Plan(*wrong)


def test_result_has_every_pass_with_its_floor_and_samples(tiny: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "PROBE_BYTES", 1 << 22)
    monkeypatch.setattr(machine, "PROBE_SIDE", 64)
    plan = Plan(rows=(1, 5), contexts=(20, 40), repeats=3)
    free = tiny.engine.parts.cache.free_pages
    result = measure_cost(tiny, plan, progress=lambda _: None)
    assert [(entry["rows"], entry["context"]) for entry in result["passes"]] == [(1, 20), (5, 20), (1, 40), (5, 40)]
    for entry in result["passes"]:
        assert len(entry["samples_ms"]) == 3 and entry["min_ms"] <= entry["ms"]
        assert entry["ratio"] == pytest.approx(entry["ms"] / entry["floor_ms"])
    assert {(d["drafter"], d["context"], d["draft_tokens"]) for d in result["drafters"]} == {
        ("ngram", context, length) for context in (20, 40) for length in cost.DRAFT_LENGTHS
    }
    assert result["outside"]["step_ms"] > result["outside"]["kernels_ms"] > 0
    assert result["prefill"]["share_of_peak"] > 0 and result["prefill"]["rows"] == 512
    assert result["memory"]["limit_mb"] == pytest.approx(1.4 * result["weight_bytes"] / 1e6 + 150, rel=0.01)
    assert tiny.engine.parts.cache.free_pages == free and not tiny.engine.busy, "the bench left something behind"


def test_a_pass_leaves_the_context_as_it_was(tiny: LLM) -> None:
    bench = cost.Bench(tiny, cost.filler(tiny, 60))
    table = Table()
    bench.fill(table, 30)
    assert bench.pass_seconds(table, 7) > 0 and table.length == 30
    tiny.engine.parts.cache.release(table)


def test_filler_is_as_long_as_wanted(tiny: LLM) -> None:
    assert len(cost.filler(tiny, 200_000)) == 200_001


def test_clocked_counts_calls_and_passes_everything_on(monkeypatch: pytest.MonkeyPatch) -> None:
    now, clock = 0.0, Clock()

    class Worker:
        name = "worker"

        def work(self, seconds: float) -> str:
            nonlocal now
            now += seconds
            return "done"

    monkeypatch.setattr(time, "perf_counter", lambda: now)
    worker = Clocked(Worker(), clock)
    assert (worker.name, worker.work(2.0), worker.work(seconds=0.5)) == ("worker", "done", "done")
    assert clock.take() == 2.5 and clock.take() == 0.0
