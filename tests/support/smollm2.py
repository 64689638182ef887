"""The real model, loaded once for all tests that need it."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from sooner.kernels import make_kernels
from sooner.models.build import build_decoder
from sooner.models.checkpoint import Checkpoint, open_checkpoint
from sooner.models.decoder import Decoder
from sooner.models.locate import find_model

CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
PROMPTS = [
    "What is the capital of France?",
    "Repeat this sentence three times: The quick brown fox jumps over the lazy dog.",
    "Write a haiku about the sea.",
    "List the numbers from one to twenty.",
    "Explain in two sentences why the sky is blue.",
    "Translate to Spanish: Good morning, my friend.",
    "Write a Python function that adds two numbers.",
    "Correct the spelling and repeat the text: Teh cat sat on teh mat, and teh dog sat on teh rug.",
    "Name five fruits, one a line.",
    "What is 17 + 25? Think step by step.",
    "Summarise: Water boils at 100 degrees at sea level. On a mountain it boils at a lower temperature.",
    "Say hello in the style of a pirate.",
]


@cache
def checkpoint() -> Checkpoint:
    return open_checkpoint(find_model("smollm2"))


@cache
def decoder(backend: str = "auto", weights: str = "auto", activations: str = "float32") -> Decoder:
    """The model in one backend and format; what is not asked for again stays in memory until the tests end."""
    opened = checkpoint()
    kernels = make_kernels("cpu", weights, 2, backend, activations)
    return build_decoder(opened.config, dict(opened.tensors), kernels, "cpu", weights)


@cache
def chat_ids(prompt: str) -> tuple[int, ...]:
    return tuple(checkpoint().tokenizer.encode(CHAT.format(prompt)))


@cache
def reference() -> Any:
    """transformers' model from the same GGUF file, computing in float64."""
    from transformers import AutoModelForCausalLM

    path = checkpoint().path
    return AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).double().eval()
