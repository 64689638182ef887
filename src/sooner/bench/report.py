"""`sooner bench report`: results/ as tables and plots, and the README's table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sooner.bench import plots, tables
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
    parts = [f"# {results[-1].machine}", tables.machine_line(results[-1].data["machine"])]
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


def update_readme(readme: Path, root: Path) -> None:
    """Replaces what stands between the markers."""
    text = read_readme(readme)
    before, _, rest = text.partition(tables.BEGIN)
    _, end, after = rest.partition(tables.END)
    if not end:
        raise InputError(f"{readme} has no markers {tables.BEGIN} and {tables.END}; add both, on lines of their own")
    readme.write_text(before + tables.readme_block(load(root)) + after, encoding="utf-8")


def readme_agrees(readme: Path, root: Path) -> bool | None:
    """Whether the README shows what results/ says, blank lines aside; None where it has no markers."""
    text = read_readme(readme)
    if tables.BEGIN not in text:
        return None
    shown = tables.BEGIN + text.partition(tables.BEGIN)[2].partition(tables.END)[0] + tables.END
    return _lines(shown) == _lines(tables.readme_block(load(root)))


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def read_readme(readme: Path) -> str:
    try:
        return readme.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read {readme}: {error}; run this at the root of the repository") from error
