"""Features: the residual stream at chosen layers, for all rows of a pass, beside logits that keep their bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from sooner.cache.paged import Table
from sooner.kernels import make_kernels
from sooner.models.build import build_decoder
from sooner.models.checkpoint import open_checkpoint
from sooner.models.decoder import Decoder
from sooner.models.runner import F32, Span, forward, tapped
from sooner.types import Draft
from tests.parity.test_logits import BACKENDS
from tests.support.families import LAYERS, text_ids, write_family

IDS = text_ids(40)
ALL = tuple(range(LAYERS + 1))


def in_chunks(decoder: Decoder, chunk: int, taps: tuple[int, ...]) -> tuple[F32, Tensor]:
    """Logits [len(IDS), V] and features [len(IDS), taps, width], each chunk's own rows wanted as if drafted."""
    cache, table = decoder.new_cache(8), Table()
    logits, features = [], []
    for start in range(0, len(IDS), chunk):
        part = IDS[start : start + chunk]
        [rows], [states] = tapped(decoder, cache, [Span(table, part[:1], Draft.chain(part[1:]))], taps)
        logits.append(rows)
        features.append(states)
    return np.concatenate(logits), torch.cat(features)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["llama", "gemma2"])  # blocks in one call, and layer by layer
def test_features_are_what_enters_each_layer(name: str, backend: str, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    opened = open_checkpoint(write_family(name, tmp_path))
    target = build_decoder(opened.config, opened.tensors, make_kernels("cpu", "f32", 1, backend), "cpu", "f32")
    model = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager").eval()
    with torch.inference_mode():
        states = model(torch.tensor([IDS]), output_hidden_states=True).hidden_states
    wanted = torch.cat(states).transpose(0, 1)  # the last of them after the final norm
    plain, _ = in_chunks(target, 7, ())
    for chunk in (1, 7, len(IDS)):
        logits, features = in_chunks(target, chunk, ALL)
        normed = target.kernels.rmsnorm(features[:, LAYERS].contiguous(), target.norm)
        torch.testing.assert_close(features[:, :LAYERS], wanted[:, :LAYERS], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(normed, wanted[:, LAYERS], rtol=1e-4, atol=1e-4)
        few = in_chunks(target, chunk, (1, LAYERS))
        if target.kernels.exact_rows:
            assert np.array_equal(logits, plain), "taps changed a logit"
            assert torch.equal(few[1], features[:, [1, LAYERS]])


def test_spans_get_their_own_rows(tmp_path: Path) -> None:
    opened = open_checkpoint(write_family("llama", tmp_path))
    target = build_decoder(opened.config, opened.tensors, make_kernels("cpu", "f32", 1, "torch"), "cpu", "f32")
    spans = [Span(Table(), IDS[:5], wants=0), Span(Table(), IDS[5:6], Draft((7, 8, 9), (-1, -1, 0), (None,) * 3))]
    _, features = tapped(target, target.new_cache(2), spans, (0, 2))
    assert [tuple(f.shape) for f in features] == [(5, 2, 96), (4, 2, 96)]
    embedded = target.kernels.embed(target.embed, torch.tensor([*IDS[:6], 7, 8, 9]))
    assert torch.equal(torch.cat(features)[:, 0], embedded)


def test_taps_must_ascend(tmp_path: Path) -> None:
    opened = open_checkpoint(write_family("llama", tmp_path))
    target = build_decoder(opened.config, opened.tensors, make_kernels("cpu", "f32", 1, "torch"), "cpu", "f32")
    for taps in ((2, 1), (1, 1), (-1,), (LAYERS + 1,)):
        with pytest.raises(ValueError, match="must ascend"):
            tapped(target, target.new_cache(2), [Span(Table(), IDS[:1])], taps)
    [logits] = forward(target, target.new_cache(2), [Span(Table(), IDS[:1])])
    assert logits.shape == (1, opened.config.vocabulary)
