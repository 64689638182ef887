"""llama.cpp through llama-cpp-python: plain, or lookup (its prompt lookup, 3-grams, `amount` tokens)."""

from __future__ import annotations

import llama_cpp
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

from benchmarks.peers.protocol import Recorder, read_job, run


def main() -> None:
    job = read_job()
    draft = LlamaPromptLookupDecoding(max_ngram_size=3, num_pred_tokens=job.amount) if job.mode == "lookup" else None
    llm = llama_cpp.Llama(
        job.model,
        n_ctx=job.longest + 64,
        n_threads=job.threads,
        n_threads_batch=job.threads,
        draft_model=draft,
        verbose=False,
    )

    def answer(prompt: list[int], max_tokens: int, recorder: Recorder) -> None:
        llm.reset()  # else the beginning that prompts share would not be read again
        for token in llm.generate(prompt, temp=0.0, repeat_penalty=1.0):
            recorder.add([token])
            if recorder.ended or len(recorder.tokens) == max_tokens:
                break

    run(job, llama_cpp.__version__, answer)


if __name__ == "__main__":
    main()
