from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from sooner.bench import report, results, tables
from sooner.errors import InputError

MACHINE = {
    "slug": "test-2c",
    "processor": "Test",
    "family": "25",
    "model": "1",
    "threads": 2,
    "cores": 2,
    "kernels": "cpu",
    "isa": "avx2",
    "commit": "abc1234",
}
CATEGORY = {
    "prompts": 2,
    "plain_tok_s": 50.0,
    "spec_tok_s": 45.0,
    "speedup": 0.9,
    "speedup_interval": [0.85, 0.95],
    "end_to_end_speedup": 0.93,
    "tokens_per_round": 1.1,
    "acceptance_rate": 0.1,
    "acceptance_by_position": [0.1],
    "time_share": {"draft": 0.01, "target": 0.9, "rest": 0.09},
    "identical": True,
}


def speed_result(speedup: float = 0.9, date: str = "2026-01-02", draft: str = "ngram") -> dict[str, Any]:
    settings = {
        "model": "smollm2", "weights": "bf16", "formats": ["bf16"], "draft": draft, "draft_tokens": 4,
        "temperature": 0.0, "max_tokens": 128, "prompts": "ours",
    }  # fmt: skip
    categories = {
        "chat": CATEGORY | {"speedup": speedup},
        "edit": CATEGORY | {"speedup": 2.5, "speedup_interval": None},
    }
    return results.envelope("speed", MACHINE, ["sooner", "bench"], settings, 0) | {
        "date": f"{date}T00:00:00+00:00",
        "categories": categories,
        "geomean_speedup": 1.5,
        "geomean_interval": None,
    }


def cost_result() -> dict[str, Any]:
    settings = {"model": "smollm2", "weights": "auto", "formats": ["q4_1", "q8_0"]}
    passes = [
        {"rows": rows, "context": context, "floor_ms": 10.0, "ms": 10.0 + rows + context / 100, "ratio": 1.5}
        for context in (128, 1024)
        for rows in (1, 4)
    ]
    return results.envelope("cost", MACHINE, ["sooner", "bench"], settings, 0) | {
        "read_gbs": 20.0,
        "peak_gflops": 64.0,
        "weight_bytes": 98_000_000,
        "passes": passes,
        "drafters": [],
        "prefill": {"rows": 512, "ms": 2000.0, "share_of_peak": 0.72},
        "outside": {"kernels": "C++ functions", "ms": 1.5, "step_ms": 15.0},
        "memory": {"over_bare_mb": 200.0, "limit_mb": 287.0},
    }


def peers_result() -> dict[str, Any]:
    settings = {"model": "smollm2", "prompts": 16, "max_tokens": 96, "runs": 3, "threads": 2}
    engine = {"version": "1.0", "geomean_tok_s": 50.0, "geomean_end_to_end_tok_s": 40.0, "prompts": 16}
    return results.envelope("peers", MACHINE, ["python"], settings, 0) | {
        "engines": {
            "slow/plain": engine | {"sooner_over_it": 1.5, "same_as_plain": 16},
            "fast/plain": engine | {"geomean_tok_s": 90.0, "sooner_over_it": 0.83, "same_as_plain": 9},
        },
        "failed": {"broken/plain": "no such library"},
    }


def test_files_are_never_written_over(tmp_path: Path) -> None:
    paths = [results.save(speed_result(), root=tmp_path) for _ in range(3)]
    assert [path.relative_to(tmp_path).as_posix() for path in paths] == [
        "test-2c/speed/2026-01-02-abc1234.json",
        "test-2c/speed/2026-01-02-abc1234-2.json",
        "test-2c/speed/2026-01-02-abc1234-3.json",
    ]
    assert results.save(speed_result(), tmp_path / "own.json") == tmp_path / "own.json"
    with pytest.raises(InputError, match="--out"):
        results.save(speed_result(), tmp_path / "own.json" / "below.json")


def test_absolute_paths_do_not_get_into_results() -> None:
    command = ["sooner", "bench", "speed", "--prompts", str(Path.cwd() / "mine.jsonl"), "--out", "a b/out.json"]
    assert results.envelope("speed", MACHINE, command, {}, 0)["command"].endswith(
        "--prompts mine.jsonl --out 'a b/out.json'"
    )


def test_the_newest_of_equal_settings_counts(tmp_path: Path) -> None:
    for result in (speed_result(0.8, "2026-02-01"), speed_result(0.7), speed_result(draft="suffix")):
        results.save(result, root=tmp_path)
    results.save(cost_result(), root=tmp_path)
    newest = results.latest(results.load(tmp_path), "speed")
    found = {result.data["settings"]["draft"]: result.date[:10] for result in newest}
    assert len(newest) == 2 and found == {"ngram": "2026-02-01", "suffix": "2026-01-02"}


@pytest.mark.parametrize("content", ["{", "[]", '{"suite": "speed"}'])
def test_a_damaged_result_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "m" / "speed" / "x.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(InputError, match=re.escape(str(path))):
        results.load(tmp_path)


def test_tables_show_losses_failures_and_ratios() -> None:
    speed = tables.speed_table(speed_result())
    assert re.search(r"chat .* 0\.90x .*0\.85 to 0\.95", speed) and "1% / 90% / 9%" in speed
    cost = tables.cost_table(cost_result())
    assert re.search(r"\| 4 .*10\.0 .*15\.3 .*1\.50x .*24\.2 .*1\.59x", cost)
    peers = tables.peers_table(peers_result())
    assert peers.index("fast/plain 1.0") < peers.index("slow/plain 1.0")
    assert "0.83x" in peers and "9 of 16" in peers and "Did not run: broken/plain (no such library)" in peers


def test_tables_are_rectangular() -> None:
    for table in (
        tables.speed_table(speed_result()),
        tables.cost_table(cost_result()),
        tables.peers_table(peers_result()),
        tables.peers_summary(peers_result()),
    ):
        lines = [line for line in table.splitlines() if line.startswith("|")]
        assert len({line.count("|") for line in lines}) == 1 and len({len(line) for line in lines}) == 1


def test_report_and_readme_come_from_the_results(tmp_path: Path) -> None:
    root, readme = tmp_path / "results", tmp_path / "README.md"
    for result in (speed_result(), speed_result(draft="suffix"), cost_result(), peers_result()):
        results.save(result, root=root)
    (path,) = report.write_reports(root)
    text = path.read_text()
    pictures = re.findall(r"\]\((.*\.png)\)", text)
    assert sorted(pictures) == ["cost-smollm2-weights-auto-q4-1-q8-0.png", "speed.png"]
    assert all((path.parent / picture).stat().st_size > 10_000 for picture in pictures)
    readme.write_text("before\n<!-- bench:begin -->\nold\n<!-- bench:end -->\nafter\n")
    assert report.readme_agrees(readme, root) is False
    report.update_readme(readme, root)
    assert report.readme_agrees(readme, root) is True
    text = readme.read_text()
    assert text.startswith("before\n<!-- bench:begin -->") and text.endswith("<!-- bench:end -->\nafter\n")
    assert "old" not in text and "0.90x" in text and "suffix (4)" in text and "Did not run" in text
    readme.write_text(text.replace("0.90x", "1.90x"))
    assert report.readme_agrees(readme, root) is False


def test_a_summary_has_one_line_for_each_engine_with_its_best_speculation() -> None:
    data = peers_result()
    for mode, speed, over in (("lookup:4", 120.0, 0.6), ("lookup:2", 95.0, 0.8)):
        data["engines"][f"fast/{mode}"] = data["engines"]["fast/plain"] | {
            "geomean_tok_s": speed,
            "sooner_over_it": over,
        }
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in tables.peers_summary(data).splitlines()[2:4]]
    assert rows == [
        ["fast 1.0", "90.0", "120.0 (lookup:4)", "9 of 16", "0.60x"],
        ["slow 1.0", "50.0", "none", "", "1.50x"],
    ]


def test_the_readme_shows_whole_runs_and_the_newest_peers(tmp_path: Path) -> None:
    part = speed_result(draft="part", date="2026-03-01")
    part["settings"]["categories"] = "edit"
    newer = peers_result() | {"date": "2026-03-01T00:00:00+00:00", "failed": {}}
    newer["settings"]["max_tokens"] = 32
    older = peers_result() | {"date": "2026-01-02T00:00:00+00:00"}
    for result in (speed_result(), part, newer, older):
        results.save(result, root=tmp_path)
    block = tables.readme_block(results.load(tmp_path))
    assert "ngram (4)" in block and "part (4)" not in block
    assert "up to 32 tokens, 2 threads" in block and "Did not run" not in block
    assert "kernels (" not in block, "runs of several kernels stand in one table"


def test_the_readme_shows_the_machine_measured_last_and_names_the_others(tmp_path: Path) -> None:
    elsewhere = speed_result(draft="elsewhere", date="2025-12-01")
    elsewhere["machine"] = elsewhere["machine"] | {"slug": "other-4c"}
    for result in (elsewhere, speed_result()):
        results.save(result, root=tmp_path)
    block = tables.readme_block(results.load(tmp_path))
    assert "ngram (4)" in block and "elsewhere (4)" not in block
    assert "results/other-4c/report.md" in block


def test_a_readme_without_markers_is_refused(tmp_path: Path) -> None:
    results.save(cost_result(), root=tmp_path)
    readme = tmp_path / "README.md"
    with pytest.raises(InputError, match="cannot read"):
        report.update_readme(readme, tmp_path)
    readme.write_text("no markers")
    with pytest.raises(InputError, match="no markers"):
        report.update_readme(readme, tmp_path)
    assert report.readme_agrees(readme, tmp_path) is None


def test_no_results_and_no_matplotlib_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="no results"):
        report.write_reports(tmp_path)
    results.save(cost_result(), root=tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match="pip install matplotlib"):
        report.write_reports(tmp_path)


def test_the_readme_says_what_the_results_say() -> None:
    root = Path(__file__).parents[2]
    readme = root / "README.md"
    agrees = report.readme_agrees(readme, root / "results") if readme.exists() else None
    if agrees is None:
        pytest.skip("README.md has no bench markers yet")
    assert agrees, "README.md disagrees with results/; run `sooner bench report --update-readme`"
