from __future__ import annotations

import time

import pytest

from sooner.bench import machine
from sooner.llm import LLM


def test_facts_name_what_a_reader_needs(tiny: LLM) -> None:
    facts = machine.facts(tiny.decoder.kernels)
    assert facts["threads"] == 2 and facts["cores"] >= 1 and facts["memory_gb"] > 0
    assert all(facts[key] for key in ("slug", "processor", "isa", "kernels", "torch", "commit", "sooner"))


@pytest.mark.parametrize(
    ("processor", "info", "slug"),
    [
        ("AMD EPYC", {"cpu family": "25", "model": "1"}, "amd-epyc-f25m1-2c"),
        ("Intel(R) Xeon(R) Platinum 8488C CPU @ 2.40GHz", {}, "intel-xeon-platinum-8488c-2c"),
        ("", {}, "unknown-2c"),
    ],
)
def test_slug_is_a_folder_name(processor: str, info: dict[str, str], slug: str) -> None:
    assert machine.slug(processor, info, 2) == slug


def test_best_seconds_takes_the_shortest_and_skips_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    now, durations = 0.0, iter([0.1, 5.0, 2.0, 3.0])

    def work() -> None:
        nonlocal now
        now += next(durations)

    monkeypatch.setattr(time, "perf_counter", lambda: now)
    assert machine.best_seconds(work, repeats=3) == 2.0


def test_probes_give_positive_limits(tiny: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "PROBE_BYTES", 1 << 22)
    monkeypatch.setattr(machine, "PROBE_SIDE", 64)
    probe = machine.ReadProbe(tiny.decoder.kernels)
    found = [probe.best_gbs, probe.gbs(), machine.peak_gflops(tiny.decoder.kernels)]
    assert all(0.01 < limit < 1e5 for limit in found)


def test_status_lines_become_megabytes() -> None:
    text = "Name:\tpython\nVmHWM:\t  2000 kB\nVmRSS:\t  1000 kB\nThreads:\t2\n"
    assert machine._parse_status(text) == pytest.approx({"highest": 2.048, "resident": 1.024})
    assert machine._parse_status("") == {}
