"""An exported head, read back by our loader, gives the logits of the module that was trained, at every step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from sooner.cache.paged import Table
from sooner.draft.eagle import Eagle3
from sooner.draft.eagle_files import read_eagle
from sooner.kernels import make_kernels
from sooner.models.build import build_decoder
from sooner.models.checkpoint import open_checkpoint
from sooner.models.runner import Span, layout
from sooner.train.documents import Batch, Document
from sooner.train.eagle import EagleHead
from sooner.train.export import FORMATS, Format, export_eagle
from sooner.train.store import Answer, observe
from sooner.train.teach_eagle import shape_of
from tests.support.tiny_models import write_folder

TAPS, STEPS = (0, 1, 2), 3


@pytest.mark.parametrize("layout_name", FORMATS)
def test_the_loader_computes_what_was_trained(tmp_path: Path, layout_name: Format) -> None:
    checkpoint = open_checkpoint(write_folder(tmp_path / "target"))
    decoder = build_decoder(checkpoint.config, dict(checkpoint.tensors), make_kernels("cpu", "f32", 1))
    tokens = torch.arange(0, 120, 3)
    torch.manual_seed(1)
    head = EagleHead(shape_of(checkpoint.config, TAPS, len(tokens)), torch.randn(264, 64)[:0], tokens)
    head.embedding = open_checkpoint(tmp_path / "target").tensors["embed"].data.view(torch.float32).view(-1, 64)
    for parameter in head.parameters():  # what bf16 holds exactly
        parameter.data = parameter.data.bfloat16().float()
    export_eagle(head, tmp_path / "head", layout_name, "target")
    loaded = read_eagle(tmp_path / "head", decoder, "f32")
    assert isinstance(loaded, Eagle3)
    assert loaded.targets is not None
    assert loaded.targets.tolist() == tokens.tolist()

    answer = Answer((5, 9, 7), tuple(range(20, 40)), 0.0)
    document = observe(decoder, answer, TAPS)
    to_draft = torch.full((checkpoint.config.vocabulary,), -1)
    with torch.no_grad():
        expected = head.steps(Batch([document], to_draft, 1.0), STEPS)
    for row in (0, 7):
        ours = drafted(loaded, document, row)
        for step in range(STEPS):
            torch.testing.assert_close(ours[step], expected[step][row], atol=2e-3, rtol=2e-3)


@torch.inference_mode()
def drafted(head: Eagle3, document: Document, row: int) -> list[torch.Tensor]:
    """Logits of STEPS drafted tokens after drafting row `row`, the answer's own tokens being the accepted ones."""
    cache, table, logits = head.new_cache(8), Table(), []
    end = document.prompt + row
    hidden = head.fuse(torch.from_numpy(document.states[:end].astype(np.float32)))
    tokens = document.tokens[1 : end + 1].astype(int).tolist()
    for step in range(STEPS):
        cache.reserve(table, table.length + len(tokens))
        rows, wanted = layout([Span(table, tokens)], head.device)
        guess, hidden = head.forward(hidden, rows, cache.layers[0], wanted)
        cache.advance(table, table.length + len(tokens))
        logits.append(guess[0])
        tokens = [int(document.tokens[end + 1 + step])]
    return logits
