"""`sooner bench report`: results/ as tables and plots, and what the README shows of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sooner.bench import demo, plots, tables
from sooner.bench.results import Result, latest, load
from sooner.errors import InputError


def write_reports(root: Path) -> list[Path]:
    """results/<machine>/report.md with its plots, for every machine; returns the reports."""
    results = load(root)
    if not results:
        raise InputError(f"{root} holds no results; run `sooner bench cost` or `sooner bench speed` first")
    paths = []
    for slug in dict.fromkeys(result.machine for result in results):
        mine, folder = [result for result in results if result.machine == slug], root / slug
        path = folder / "report.md"
        path.write_text(render(mine, plots.draw(mine, folder)), encoding="utf-8")
        paths.append(path)
    return paths


def render(results: Sequence[Result], pictures: Sequence[Path]) -> str:
    """The report of one machine: its newest result for every question."""
    parts = [f"# {results[-1].machine}", tables.processor_line(results[-1].data["machine"])]
    for result in latest(results, "speed"):
        parts += [f"## Speed: {tables.speed_title(result.data)}", source(result), tables.speed_table(result.data)]
    for result in latest(results, "concurrency"):
        parts += [f"## Many at once: {tables.speed_title(result.data)}", source(result)]
        parts += [tables.concurrency_table(result.data)]
    for result in latest(results, "peers"):
        parts += [f"## Peers: {tables.peers_title(result.data)}", source(result), tables.peers_table(result.data)]
    for result in latest(results, "cost"):
        parts += [f"## Cost: {tables.cost_title(result.data)}", source(result), tables.cost_facts(result.data)]
        parts += [tables.cost_table(result.data)]
        parts += [tables.drafter_table(result.data)] if result.data["drafters"] else []
    parts += [f"![{path.stem}]({path.name})" for path in pictures]
    return "\n\n".join(parts) + "\n"


def for_the_lab(root: Path) -> tuple[dict[str, list[tuple[str, str, Mapping[str, Any]]]], list[str]]:
    """By suite, (title, file, data) of the newest results; and the machines that they come from."""
    results = load(root)
    titles = {
        "speed": tables.speed_title,
        "peers": tables.peers_title,
        "cost": tables.cost_title,
        "concurrency": tables.speed_title,
    }
    shown = {
        suite: [
            (title(r.data), f"{root.name}/{r.machine}/{suite}/{r.path.name}", r.data) for r in latest(results, suite)
        ]
        for suite, title in titles.items()
    }
    return shown, list(dict.fromkeys(tables.machine_line(result.data["machine"]) for result in results))


def source(result: Result) -> str:
    return f"`{result.data['command']}` on {result.date[:10]}, from `{result.suite}/{result.path.name}`"


def readme_blocks(root: Path) -> list[str]:
    """What results/ says, with the markers that it stands between."""
    results = load(root)
    return [tables.readme_block(results), *(demo.readme_block(result) for result in latest(results, "demo")[-1:])]


def update_readme(readme: Path, root: Path) -> None:
    """Replaces what stands between the markers."""
    text = read_readme(readme)
    for block in readme_blocks(root):
        begin, end = markers(block)
        before, _, rest = text.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            raise InputError(f"{readme} has no markers {begin} and {end}; add both, on lines of their own")
        text = before + block + after
    readme.write_text(text, encoding="utf-8")


def readme_agrees(readme: Path, root: Path) -> bool | None:
    """Whether the README shows what results/ says, blank lines aside; None where it has no markers."""
    text = read_readme(readme)
    if tables.BEGIN not in text:
        return None
    return all(_lines(block) == _lines(between(text, *markers(block))) for block in readme_blocks(root))


def markers(block: str) -> tuple[str, str]:
    lines = block.splitlines()
    return lines[0], lines[-1]


def between(text: str, begin: str, end: str) -> str:
    return begin + text.partition(begin)[2].partition(end)[0] + end


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def read_readme(readme: Path) -> str:
    try:
        return readme.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read {readme}: {error}; run this at the root of the repository") from error
