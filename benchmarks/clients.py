"""Foreign clients against our server, in an environment of their own: `python -m benchmarks.peers.venvs clients`.

    python -m benchmarks.clients --save

schemathesis sends what the OpenAPI document allows and what it does not: no answer may be a 5xx or undocumented.
lm-eval scores a local task through /v1/completions, plainly and with drafts: the scores must be identical. The examples
of docs/server.md for LangChain and `llm` run. Prints one JSON line; exit code 1 on a failure.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import saving
from benchmarks.peers.venvs import python_of
from benchmarks.serving import Served, serving

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
TASK = """
task: sooner_local
dataset_path: json
dataset_kwargs: {data_files: {test: FILE}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_target: answer
doc_to_choice: "{{choices}}"
metric_list: [{metric: acc}, {metric: acc_norm}]
"""
QUESTIONS = [
    ("The capital of France is", [" Paris", " London", " Madrid"]),
    ("Two plus two is", [" four", " nine", " blue"]),
    ("The opposite of hot is", [" cold", " warm", " red"]),
    ("Snow is", [" white", " green", " loud"]),
    ("A week has", [" seven days", " two days", " forty days"]),
    ("Fish live in", [" water", " trees", " books"]),
]


def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, **options)


def schemathesis(server: Served, examples: int) -> dict[str, Any]:
    program = str(python_of("clients").with_name("schemathesis"))
    limits = ["--max-examples", str(examples), "--checks", CHECKS, "--seed", "1", "--request-timeout", "60"]
    done = run([program, "run", f"{server.url}/openapi.json", *limits])
    return {
        "ok": done.returncode == 0,
        "said": done.stdout[-1500:] if done.returncode else done.stdout.splitlines()[-1],
    }


def lm_eval(server: Served, tokenizer: str) -> dict[str, Any]:
    """`speculative` cannot be sent by this client, so the second server is one without drafters."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [{"question": q, "choices": c, "answer": 0} for q, c in QUESTIONS]
        Path(folder, "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
        Path(folder, "task.yaml").write_text(TASK.replace("FILE", str(Path(folder, "rows.jsonl"))))
        model = f"base_url={server.url}/v1/completions,model=smollm2,tokenizer={tokenizer},tokenized_requests=False"
        command = [str(python_of("clients")), "-m", "lm_eval", "--model", "local-completions", "--model_args", model]
        command += ["--tasks", "sooner_local", "--include_path", folder, "--output_path", folder, "--log_samples"]
        done = run(command, env={**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"})
        if done.returncode:
            return {"error": done.stderr[-1500:]}
        samples = [json.loads(line) for path in Path(folder).rglob("samples_*.jsonl") for line in path.open()]
        found = json.loads(next(Path(folder).rglob("results_*.json")).read_text())["results"]["sooner_local"]
    scores = {name: value for name, value in found.items() if name.startswith("acc") and "stderr" not in name}
    return {"scores": scores, "answers": [sample["resps"] for sample in samples]}


def examples(server: Served) -> dict[str, bool]:
    """Of the documentation, those whose packages are not among ours."""
    page = Path("docs/server.md").read_text(encoding="utf-8").replace("http://127.0.0.1:8000", server.url)
    blocks = re.findall(r"```(\w+)\n(.*?)```", page, re.DOTALL)
    langchain = next(text for kind, text in blocks if "langchain_openai" in text)
    shell = next(text for kind, text in blocks if kind == "sh" and "llm --no-stream" in text)
    settings = next(text for kind, text in blocks if kind == "yaml")
    said = {"langchain": run([str(python_of("clients")), "-c", langchain]).stdout}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "extra-openai-models.yaml").write_text(settings)
        path = f"{python_of('clients').parent.absolute()}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "LLM_USER_PATH": folder, "OPENAI_API_KEY": "none"}
        said["llm"] = run(["sh", "-c", shell], env=environment).stdout
    return {name: "Paris" in text for name, text in said.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", default=".peers/folder", help="a Hugging Face folder of the model")
    parser.add_argument("--examples", type=int, default=40, help="of schemathesis, for each route")
    parser.add_argument("--save", action="store_true", help="write the result under results/")
    options = parser.parse_args()
    with serving("smollm2", ["--draft", "suffix,ngram"]) as drafting:
        figures: dict[str, Any] = {"examples": examples(drafting), "lm_eval": lm_eval(drafting, options.tokenizer)}
        figures["schemathesis"] = schemathesis(drafting, options.examples)
    with serving("smollm2") as plain:
        figures["lm_eval_identical"] = lm_eval(plain, options.tokenizer) == figures["lm_eval"]
    figures["lm_eval"].pop("answers", None)
    print(json.dumps(figures))
    saving.save("clients", options, {"clients": figures})
    ok = figures["schemathesis"]["ok"] and figures["lm_eval_identical"] and all(figures["examples"].values())
    sys.exit(not ok)


if __name__ == "__main__":
    main()
