"""OpenVINO GenAI, which reads the GGUF file: plain, or lookup (prompt lookup, 3-grams, `amount` tokens)."""

from __future__ import annotations

from typing import Any

import numpy as np
import openvino  # type: ignore[import-not-found]
import openvino_genai

from benchmarks.peers.protocol import Recorder, read_job, run


class Streamer(openvino_genai.StreamerBase):  # type: ignore[misc]
    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def write(self, token: Any) -> Any:
        self._recorder.add([token] if isinstance(token, int) else list(token))
        return openvino_genai.StreamingStatus.RUNNING

    def end(self) -> None:
        pass


def main() -> None:
    job = read_job()
    lookup = job.mode == "lookup"
    options: dict[str, Any] = {"prompt_lookup": True} if lookup else {}
    pipeline = openvino_genai.LLMPipeline(job.model, "CPU", INFERENCE_NUM_THREADS=job.threads, **options)
    drafting: dict[str, Any] = {"num_assistant_tokens": job.amount, "max_ngram_size": 3} if lookup else {}

    def answer(prompt: list[int], max_tokens: int, recorder: Recorder) -> None:
        config = openvino_genai.GenerationConfig(
            max_new_tokens=max_tokens, do_sample=False, stop_token_ids=set(job.eos), **drafting
        )
        pipeline.generate(openvino.Tensor(np.array([prompt], np.int64)), config, Streamer(recorder))

    run(job, openvino_genai.__version__.split("-")[0], answer)


if __name__ == "__main__":
    main()
