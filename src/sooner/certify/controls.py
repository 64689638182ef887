"""Part 5: each wrong rule, put into a copy of the engine's source, must be caught by the public command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sooner
from sooner.certify.checks import Check, Job, Part
from sooner.certify.wrong_rules import WRONG_RULES, WrongRule
from sooner.errors import InputError
from sooner.kernels import usable_cores

PARTS = "laws,tokens,distribution"
LIMIT_S = 900


def controls(seed: int) -> Part:
    pool = ThreadPoolExecutor(usable_cores(), thread_name_prefix="control")
    runs = [(rule, pool.submit(run_control, rule, seed)) for rule in WRONG_RULES]
    question = (
        f"Is each of {len(WRONG_RULES)} wrong rules, put into a copy of this engine, caught by "
        f"`sooner certify --quick --only {PARTS}`?"
    )
    return Part("controls", question, [Job(rule.name, partial(_check, rule, run, pool)) for rule, run in runs])


def run_control(rule: WrongRule, seed: int, parts: str = PARTS) -> dict[str, Any]:
    """What the public command reports of an engine with this fault."""
    with spoiled_copy(rule) as folder:
        command = [sys.executable, "-m", "sooner.cli.main", "certify", "--quick", "--only", parts, "--json"]
        command += ["--seed", str(seed)]
        # The copy comes first on the path; an editable install of the package would otherwise be found.
        environment = os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except json.JSONDecodeError as error:
        last = done.stderr.strip().splitlines()[-1:] or ["nothing on standard error"]
        raise InputError(f"the control {rule.name!r} gave no report, exit code {done.returncode}: {last[0]}") from error
    return report | {"exit_code": done.returncode}


@contextmanager
def spoiled_copy(rule: WrongRule) -> Iterator[Path]:
    """A folder for PYTHONPATH that holds the package with the rule's patches."""
    with TemporaryDirectory(prefix="sooner-control-") as name:
        package = Path(name) / "sooner"
        shutil.copytree(Path(sooner.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__", "native"))
        for patch in rule.patches:
            patch.apply(package)
        yield Path(name)


def _check(rule: WrongRule, run: Future[dict[str, Any]], pool: ThreadPoolExecutor) -> list[Check]:
    try:
        report = run.result()
    except BaseException:  # Ctrl-C too: what has not begun must not begin
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    failed = {
        part: [check for check in body["checks"] if not check["ok"]]
        for part, body in report["parts"].items() if not body["ok"]
    }  # fmt: skip
    caught = report["verdict"] == "fail" and report["exit_code"] == 1 and bool(failed)
    examples = {part: min(checks, key=_badness) for part, checks in failed.items()}
    text = "; ".join(
        f"caught by {part} ({len(failed[part])} checks, for example {check['name']}: {check['text']})"
        for part, check in examples.items()
    )
    figures = {
        "exit_code": report["exit_code"],
        "caught_by": {part: len(checks) for part, checks in failed.items()},
        "samples": {part: check.get("n", 0) for part, check in examples.items()},
        "examples": examples,
    }
    return [Check(rule.name, caught, text or "not caught", figures)]


def _badness(check: Mapping[str, Any]) -> float:
    """The surest failure comes first: the smallest p-value, or the largest total variation."""
    return float(check["p_value"]) if "p_value" in check else -float(check.get("total_variation", 0.0))
