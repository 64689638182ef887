"""vLLM's CPU build: plain, or ngram (its n-gram drafts, up to 3-grams, `amount` tokens)."""

from __future__ import annotations

import os
from typing import Any

from benchmarks.peers.protocol import Job, Recorder, read_job, run

DTYPES = {"f32": "float32", "bf16": "bfloat16"}
CONTEXT = 1024  # the same for most jobs, since vLLM compiles anew for every other one (minutes, kept on disk)


def main() -> None:
    job = read_job()
    os.environ |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine in this process: no pipe in the times
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{job.threads - 1}",  # else it keeps one core for a server that is not there
        "VLLM_CPU_KVCACHE_SPACE": "1",
    }
    import vllm  # reads the environment

    llm = vllm.LLM(
        job.folder,
        dtype=DTYPES[job.format],
        max_model_len=max(CONTEXT, job.longest),
        max_num_seqs=1,
        enable_prefix_caching=False,
        disable_log_stats=True,
        **drafting(job),
    )
    engine = llm.llm_engine

    def answer(prompt: list[int], max_tokens: int, recorder: Recorder) -> None:
        params = vllm.SamplingParams(temperature=0.0, max_tokens=max_tokens, stop_token_ids=job.eos)
        engine.add_request(f"{id(recorder)}", {"prompt_token_ids": prompt}, params)
        seen = 0
        while engine.has_unfinished_requests():
            for output in engine.step():
                tokens = list(output.outputs[0].token_ids)
                if len(tokens) > seen:
                    recorder.add(tokens[seen:])
                seen = len(tokens)

    run(job, vllm.__version__, answer)


def drafting(job: Job) -> dict[str, Any]:
    if job.mode == "plain":
        return {}
    how = {"method": "ngram", "num_speculative_tokens": job.amount, "prompt_lookup_max": 3, "prompt_lookup_min": 2}
    return {"speculative_config": how}


if __name__ == "__main__":
    main()
