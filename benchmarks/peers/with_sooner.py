"""Sooner itself through the peers' protocol: plain, or with any drafter, `amount` tokens a round."""

from __future__ import annotations

import sooner
from benchmarks.peers.protocol import Recorder, read_job, run
from sooner import LLM, SamplingParams


def main() -> None:
    job = read_job()
    llm = LLM(
        job.model,
        draft=None if job.mode == "plain" else job.mode,
        draft_tokens="auto" if job.amount == "auto" else int(job.amount),
        weights=job.format,
        kernels=job.kernels,
        threads=job.threads,
        max_context=job.longest,
        max_sequences=1,
    )

    def answer(prompt: list[int], max_tokens: int, recorder: Recorder) -> None:
        for event in llm.stream(prompt, SamplingParams(temperature=0.0, max_tokens=max_tokens)):
            recorder.add(event.token_ids)

    run(job, sooner.__version__, answer)


if __name__ == "__main__":
    main()
