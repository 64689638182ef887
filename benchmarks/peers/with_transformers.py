"""transformers: plain, lookup (`amount` tokens), or assisted by a draft of the target's own first `amount` layers."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from transformers.generation.streamers import BaseStreamer

from benchmarks.peers.protocol import Recorder, read_job, run

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


class Streamer(BaseStreamer):  # type: ignore[misc]
    """The first call brings the prompt."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._prompt = True

    def put(self, value: torch.Tensor) -> None:
        if not self._prompt:
            self._recorder.add(value.flatten().tolist())
        self._prompt = False

    def end(self) -> None:
        pass


def main() -> None:
    job = read_job()
    torch.set_num_threads(job.threads)

    def load(**options: Any) -> Any:
        load_model = transformers.AutoModelForCausalLM.from_pretrained
        return load_model(job.folder, dtype=DTYPES[job.format], **options).eval()

    model = load()
    drafting: dict[str, Any] = {}
    if job.mode == "lookup":
        drafting = {"prompt_lookup_num_tokens": job.amount, "max_matching_ngram_size": 3}
    if job.mode == "assisted":
        drafting = {"assistant_model": load(num_hidden_layers=job.amount)}

    @torch.inference_mode()
    def answer(prompt: list[int], max_tokens: int, recorder: Recorder) -> None:
        ids = torch.tensor([prompt])
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_tokens,
            do_sample=False,
            eos_token_id=job.eos,
            pad_token_id=job.eos[0],
            streamer=Streamer(recorder),
            **drafting,
        )

    run(job, transformers.__version__, answer)


if __name__ == "__main__":
    main()
