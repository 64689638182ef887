"""The README's demo is what one run printed, of the command that `make demo` runs."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from benchmarks.demo import arguments
from sooner.bench import demo, report, results
from sooner.errors import InputError
from tests.bench.test_results import MACHINE

TRANSCRIPT = [
    "loading smollm2", "--- 1/1: Hello", "[plain]", "Hi.", "2 tokens (stop), 9.0 tokens/s", "[speculative]",
    *(f"line {i}" for i in range(6)), "99 tokens (length), 9.5 tokens/s", "speedup 1.06x",
]  # fmt: skip
SHOWN = [*TRANSCRIPT[:6], "(6 lines, left out here)", *TRANSCRIPT[-2:]]


def test_long_answers_are_left_out() -> None:
    assert list(demo.shortened(TRANSCRIPT)) == SHOWN


def test_the_readme_takes_it_over(tmp_path: Path) -> None:
    root, readme = tmp_path / "results", tmp_path / "README.md"
    head = results.envelope("demo", MACHINE, ["make", "demo"], {"arguments": "generate"}, 0)
    results.save(head | {"transcript": TRANSCRIPT}, root=root)
    readme.write_text("<!-- bench:begin -->\n<!-- bench:end -->\n")
    with pytest.raises(InputError, match="no markers <!-- demo:begin --> and <!-- demo:end -->"):
        report.update_readme(readme, root)
    readme.write_text(
        "before\n<!-- demo:begin -->\nold\n<!-- demo:end -->\nafter\n<!-- bench:begin -->\n<!-- bench:end -->\n"
    )
    report.update_readme(readme, root)
    assert report.readme_agrees(readme, root) is True
    text = readme.read_text()
    assert text.startswith("\n".join(["before", demo.BEGIN, demo.FENCE, *SHOWN, demo.FENCE, demo.END, "after"]))
    readme.write_text(text.replace("1.06x", "2.06x"))
    assert report.readme_agrees(readme, root) is False


def test_what_is_kept_is_of_the_command_in_the_makefile() -> None:
    asked = arguments(Path("Makefile").read_text(encoding="utf-8"))
    assert asked[0] == "generate" and "--compare" in asked
    [kept] = results.latest(results.load(), "demo")[-1:]
    assert kept.data["settings"]["arguments"] == shlex.join(asked), "run `python -m benchmarks.demo`"
