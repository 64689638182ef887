"""Our exported EAGLE-3 head in a real vLLM: what it accepts there, beside what it accepts here.

    python -m benchmarks.peers.venvs vllm
    python -m benchmarks.vllm_head --save

Both engines keep bf16, answer the same prompts (as token ids) greedily, one by one, and draft the same number of tokens
every round. vLLM's figures are the counters of its /metrics. FOLDER is `benchmarks/peers/write_folder.py`'s.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

from benchmarks import saving
from benchmarks.peers.venvs import python_of
from sooner.bench.workloads import load_prompts, select
from sooner.draft.load_trained import SHIPPED
from sooner.engine.stats import Stats
from sooner.llm import LLM
from sooner.models.checkpoint import open_checkpoint
from sooner.models.locate import find_model
from sooner.types import SamplingParams

PATIENCE_S = 600
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "0-1",
    "VLLM_TARGET_DEVICE": "cpu",
    "OMP_NUM_THREADS": "2",
    "HF_HUB_OFFLINE": "1",
}
Figures = dict[str, Any]


def ours(head: Path, prompts: Sequence[list[int]], drafted: int, tokens: int) -> tuple[Figures, list[str]]:
    llm = LLM("smollm2", weights="bf16", draft=f"eagle:{head}", draft_tokens=drafted, max_sequences=1)
    outputs = llm.generate(prompts, SamplingParams(temperature=0.0, max_tokens=tokens))
    stats = Stats()
    for output in outputs:
        stats.merge(output.stats)
    by_position = [round(share, 4) for share in stats.acceptance_by_position]
    return figures(stats.rounds, stats.drafted, stats.accepted, by_position), [output.text for output in outputs]


def figures(rounds: float, drafted: float, accepted: float, by_position: Sequence[float]) -> Figures:
    return {
        "rounds": int(rounds),
        "acceptance_rate": round(accepted / drafted, 4),
        "accepted_by_position": list(by_position),
        "accepted_a_round": round(accepted / rounds, 4),
    }


@contextmanager
def vllm_server(folder: str, head: Path, drafted: int, port: int) -> Iterator[str]:
    """Its URL, once it answers; the end of what it wrote where it does not."""
    how = {"method": "eagle3", "model": str(head), "num_speculative_tokens": drafted}
    command = [str(python_of("vllm")), "-m", "vllm.entrypoints.openai.api_server", "--model", folder]
    command += ["--served-model-name", "smollm2", "--port", str(port), "--dtype", "bfloat16", "--enforce-eager"]
    command += ["--max-model-len", "1024", "--max-num-seqs", "1", "--speculative-config", json.dumps(how)]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | ENVIRONMENT)
        try:
            wait(f"http://127.0.0.1:{port}/health", process)
            yield f"http://127.0.0.1:{port}"
        except TimeoutError as error:
            log.seek(0)
            raise SystemExit(f"{error}\n{log.read()[-6000:]}") from None
        finally:
            process.terminate()
            process.wait(60)


def wait(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < end:
        try:
            urlopen(url, timeout=5).close()
            return
        except (URLError, OSError):
            time.sleep(1)
    raise TimeoutError(f"vLLM did not begin to serve, exit code {process.poll()}")


def complete(url: str, prompt: list[int], tokens: int) -> str:
    body = {"model": "smollm2", "prompt": prompt, "max_tokens": tokens, "temperature": 0.0}
    ask = Request(f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urlopen(ask, timeout=PATIENCE_S) as answer:
        return str(json.load(answer)["choices"][0]["text"])


def counted(url: str) -> Figures:
    """The sums of vLLM's counters of speculative decoding."""
    with urlopen(f"{url}/metrics", timeout=30) as page:
        lines = [line for line in page.read().decode().splitlines() if line.startswith("vllm:spec_decode")]
    found = [re.fullmatch(r"vllm:spec_decode_num_(\w+)_total\{(.*)\} (\S+)", line) for line in lines]
    totals = {(m[1], *re.findall(r'position="(\d+)"', m[2])): float(m[3]) for m in found if m}
    rounds = totals["drafts",]
    places = sorted(int(key[1]) for key in totals if key[0] == "accepted_tokens_per_pos")
    by_position = [round(totals["accepted_tokens_per_pos", str(place)] / rounds, 4) for place in places]
    return figures(rounds, totals["draft_tokens",], totals["accepted_tokens",], by_position)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=".peers/folder", help="a Hugging Face folder of the target")
    parser.add_argument("--head", type=Path, default=SHIPPED["eagle:smollm2"], help="what sooner train eagle wrote")
    parser.add_argument("--drafted", type=int, default=3)
    parser.add_argument("--per-category", type=int, default=1, help="prompts of each of our categories")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--port", type=int, default=8113)
    parser.add_argument("--save", action="store_true", help="write the result under results/")
    parser.set_defaults(weights="bf16")  # of both engines
    options = parser.parse_args()
    tokenizer = open_checkpoint(find_model("smollm2")).tokenizer
    prompts = [p.token_ids(tokenizer) for p in select(load_prompts(None), [], options.per_category)]
    mine, texts = ours(options.head, prompts, options.drafted, options.tokens)
    with vllm_server(options.folder, options.head, options.drafted, options.port) as url:
        theirs = [complete(url, prompt, options.tokens) for prompt in prompts]
        measured = {"prompts": len(prompts), "sooner": mine, "vllm": counted(url)}
    measured["equal_answers"] = sum(a == b for a, b in zip(texts, theirs))
    print(json.dumps(measured))
    saving.save("vllm-head", options, measured, seed=0)


if __name__ == "__main__":
    main()
