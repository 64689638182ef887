"""Logits in float32 agree to 1e-4 with transformers' exact ones: a full pass, token by token, in chunks.

transformers computes in float64 here: in float32 it is itself nearly 1e-4 away from that on SmolLM2.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

from sooner.cache.paged import Table
from sooner.kernels import make_kernels
from sooner.models.build import build_decoder
from sooner.models.checkpoint import open_checkpoint
from sooner.models.decoder import Decoder
from sooner.models.runner import F32, Span, forward
from sooner.types import Draft
from tests.support import smollm2
from tests.support.tiny_models import write_folder

BACKENDS = ["torch", "cpu"]


def in_chunks(decoder: Decoder, ids: list[int], chunk: int) -> F32:
    """Logits [len(ids), V], the prompt read in chunks; a chunk's own rows are wanted as if they were a draft."""
    cache, table, rows = decoder.new_cache(64), Table(), []
    for start in range(0, len(ids), chunk):
        part = ids[start : start + chunk]
        [logits] = forward(decoder, cache, [Span(table, part[:1], Draft.chain(part[1:]))])
        rows.append(logits)
    return np.concatenate(rows)


def assert_all_ways(decoder: Decoder, ids: list[int], wanted: F32) -> None:
    for chunk in (len(ids), 1, 7):
        assert np.abs(in_chunks(decoder, ids, chunk) - wanted).max() < 1e-4, f"chunks of {chunk}"


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_smollm2(backend: str) -> None:
    ids = list(smollm2.chat_ids("Write one sentence with emoji 🙂, digits 12345, and code: `x = f(y)`."))
    with torch.inference_mode():
        wanted = smollm2.reference()(torch.tensor([ids])).logits[0].numpy()
    assert_all_ways(smollm2.decoder(backend, "f32"), ids, wanted)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shard", ["5GB", "40KB"])
@pytest.mark.parametrize("tied", [False, True])
def test_a_hugging_face_folder(backend: str, shard: str, tied: bool, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    opened = open_checkpoint(write_folder(tmp_path, shard=shard, tie_word_embeddings=tied))
    decoder = build_decoder(opened.config, opened.tensors, make_kernels("cpu", "f32", 1, backend), "cpu", "f32")
    ids = [5, 9, 200, 31, 7, 7, 7, 100, 3, 2, 1, 250, 40]
    with torch.inference_mode():
        wanted = AutoModelForCausalLM.from_pretrained(tmp_path).eval()(torch.tensor([ids])).logits[0].numpy()
    assert_all_ways(decoder, ids, wanted)
