"""Random models small enough for a hundred thousand answers: they run through the real engine and the real drafter."""

from __future__ import annotations

from functools import cache

import torch

from sooner.cache.paged import pages_for
from sooner.certify.subject import Subject
from sooner.draft.model import ModelDrafter
from sooner.kernels import cpu
from sooner.kernels.cpu import CpuKernels
from sooner.kernels.formats import store
from sooner.kernels.reference import TorchKernels
from sooner.models.build import build_decoder
from sooner.models.config import Attention, ModelConfig
from sooner.models.decoder import Decoder
from sooner.models.rope import plain_rope

VOCABULARY = 6
CONTEXT = 32
BATCH = 256


def tiny_subject() -> Subject:
    """A target of two layers, its first layer as the draft model, and short prompts, the first of two tokens."""
    target = tiny_decoder()
    drafter = ModelDrafter("model", target.first_layers(1), VOCABULARY, BATCH * pages_for(CONTEXT))
    return Subject(target, {drafter.name: drafter}, [(1, 2), (5, 0, 3, 1, 4), (4,)], BATCH)


@cache
def tiny_decoder(seed: int = 1, layers: int = 2) -> Decoder:
    """Weights large enough that every token of the context matters, and that no token is certain."""
    config = ModelConfig(
        architecture="llama",
        attention=(Attention(plain_rope(10000.0, 16)),) * layers,
        hidden=32,
        heads=2,
        kv_heads=1,
        head_size=16,
        mlp=32,
        vocabulary=VOCABULARY,
        context=CONTEXT,
        norm_eps=1e-5,
        tied=True,
    )
    rng = torch.Generator().manual_seed(seed)
    tensors = {
        name: store(torch.ones(shape) if len(shape) == 1 else torch.randn(shape, generator=rng) * shape[1] ** -0.5)
        for name, shape in config.shapes().items()
    }
    return build_decoder(config, tensors, TorchKernels() if cpu.unavailable() else CpuKernels(1))
