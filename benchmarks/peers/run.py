"""Sooner and its peers side by side: `python -m benchmarks.peers.run --runs 3 --per-category 2 --max-tokens 96`.

Every engine answers the same prompts from the same weights, greedily, with the same threads, in a process of its own;
the engines take turns, so that drifts of the machine hit all alike. An engine is written NAME/MODE[:AMOUNT][@FORMAT],
see protocol.Job. One that fails is reported with its reason. `python -m benchmarks.peers.venvs` sets them up.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import saving
from benchmarks.peers import venvs
from benchmarks.peers.compare import compare
from benchmarks.peers.engines import DEFAULT, PEERS, Engine, parse
from benchmarks.peers.protocol import Job, dump_job
from sooner.bench import results, tables
from sooner.bench.workloads import Prompt, load_prompts, select
from sooner.errors import InputError, SoonerError
from sooner.kernels import make_kernels
from sooner.models.checkpoint import open_checkpoint
from sooner.models.locate import find_model

FOLDER = venvs.ROOT / "folder"
MINUTES = 10  # for one process


def main() -> None:
    options = parse_options()
    try:
        result = measure(options)
        path = None if options.no_save else results.save(result, options.out)
    except SoonerError as error:
        sys.exit(f"sooner: {error}")
    print(tables.peers_table(result))
    if path:
        note(f"saved {path}")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", nargs="+", default=DEFAULT, help=f"default: {' '.join(DEFAULT)}")
    parser.add_argument("--model", default="smollm2", help="a GGUF model, by short name or file")
    parser.add_argument("--runs", type=int, default=3, help="processes of each engine")
    parser.add_argument("--per-category", type=int, default=2, help="prompts of each category")
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, help="write the result to this file instead of under results/")
    parser.add_argument("--no-save", action="store_true", help="keep no file")
    return parser.parse_args()


def measure(options: argparse.Namespace) -> dict[str, Any]:
    engines = [parse(text) for text in options.engines]
    model = find_model(options.model)
    prepare(engines, model)
    prompts = select(load_prompts(None), [], options.per_category)
    settings = {
        "model": options.model,
        "prompts": len(prompts),
        "max_tokens": options.max_tokens,
        "runs": options.runs,
        "threads": options.threads,
        "engines": options.engines,
    }
    head = saving.envelope("peers", settings, make_kernels("cpu", "auto", options.threads), seed=0)
    runs, failed = take_turns(engines, make_jobs(engines, model, prompts, options), options.runs)
    return head | compare(runs, failed)


def prepare(engines: Sequence[Engine], model: Path) -> None:
    """Checks that every peer's environment is there, and lets transformers write the folder that some of them need."""
    writes = any(PEERS[engine.name].needs_folder for engine in engines) and not (FOLDER / "config.json").exists()
    names = {engine.name for engine in engines if not PEERS[engine.name].ours} | ({"transformers"} if writes else set())
    if missing := sorted(name for name in names if not venvs.is_ready(name)):
        what = " ".join(missing)
        raise InputError(f"not set up: {what}; run `python -m benchmarks.peers.venvs {what}`")
    if writes:
        python = str(venvs.python_of("transformers"))
        subprocess.run([python, "-m", "benchmarks.peers.write_folder", str(model), str(FOLDER)], check=True)


def make_jobs(
    engines: Sequence[Engine], model: Path, prompts: Sequence[Prompt], options: argparse.Namespace
) -> dict[Engine, Job]:
    checkpoint = open_checkpoint(model)
    tokenizer, eos = checkpoint.tokenizer, sorted(checkpoint.config.eos)
    asked = [{"id": p.id, "category": p.category, "tokens": p.token_ids(tokenizer)} for p in prompts]
    return {
        engine: Job(
            model=str(model),
            folder=str(FOLDER),
            mode=engine.mode,
            amount=engine.amount,
            format=engine.format,
            kernels=PEERS[engine.name].kernels,
            threads=options.threads,
            max_tokens=options.max_tokens,
            eos=eos,
            prompts=asked,
        )
        for engine in engines
    }


def take_turns(
    engines: Sequence[Engine], jobs: dict[Engine, Job], runs: int
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, str]]:
    """`runs` results of every engine, in alternating order, and why an engine failed."""
    done: dict[str, list[dict[str, Any]]] = {}
    failed: dict[str, str] = {}
    for number in range(runs):
        for engine in engines if number % 2 == 0 else engines[::-1]:
            if engine.text in failed:
                continue
            note(f"run {number + 1}/{runs}: {engine.text}")
            try:
                done.setdefault(engine.text, []).append(play(engine, jobs[engine]))
            except RuntimeError as error:
                failed[engine.text] = str(error)
                done.pop(engine.text)
                note(f"{engine.text} failed: {error}")
    return done, failed


def play(engine: Engine, job: Job) -> dict[str, Any]:
    """One process of one engine. Raises RuntimeError with the last thing that it said."""
    python = sys.executable if PEERS[engine.name].ours else str(venvs.python_of(engine.name))
    environment = os.environ | {
        "OMP_NUM_THREADS": str(job.threads),
        "PYTHONPATH": "src",
        "TOKENIZERS_PARALLELISM": "false",
    }
    command = [python, "-m", PEERS[engine.name].module]
    try:
        done = subprocess.run(
            command,
            input=dump_job(job),
            capture_output=True,
            text=True,
            env=environment,
            timeout=60 * MINUTES,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"still running after {MINUTES} minutes") from error
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise RuntimeError(said[-1][:300])
    return find_result(done.stdout)


def find_result(output: str) -> dict[str, Any]:
    """The engine's own messages may surround it."""
    line = next((line for line in reversed(output.splitlines()) if line.startswith('{"version"')), None)
    if line is None:
        raise RuntimeError("it ended without a result")
    result: dict[str, Any] = json.loads(line)
    return result


def note(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
