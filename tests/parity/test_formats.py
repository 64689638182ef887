"""Models whose matrices come in every format of GGUF, mixed within a layer as in files of the K kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sooner.kernels import make_kernels
from sooner.kernels.formats import DTYPES, FORMATS, Stored, dequantise
from sooner.models.build import build_decoder
from sooner.models.checkpoint import open_checkpoint
from sooner.models.decoder import Decoder
from tests.parity.test_logits import BACKENDS, assert_all_ways, in_chunks
from tests.support.families import text_ids
from tests.support.quants import random_quants
from tests.support.tiny_models import TOKENS, tiny_metadata, write_gguf

WIDTH, INNER = 256, 512
MIXED = {  # as llama.cpp's Q4_K_M and Q5_0 mix them
    "attn_q": "q4_k", "attn_k": "q4_k", "attn_v": "q6_k", "attn_output": "q5_k", "ffn_gate": "q5_1", "ffn_up": "q5_1",
    "ffn_down": "q6_k", "token_embd": "q5_0", "output": "q6_k",
}  # fmt: skip


def formats(name: str) -> dict[str, str]:
    return MIXED if name == "mixed" else dict.fromkeys(MIXED, name)


def write(path: Path, name: str) -> Path:
    """Two layers of width 256, so that K blocks fit; the numbers of a block are as large as its format needs them."""
    shapes = {"token_embd": (len(TOKENS), WIDTH), "output": (len(TOKENS), WIDTH)}
    sizes = {"attn_q": (256, WIDTH), "attn_k": (128, WIDTH), "attn_v": (128, WIDTH), "attn_output": (WIDTH, 256)}
    sizes |= {"ffn_gate": (INNER, WIDTH), "ffn_up": (INNER, WIDTH), "ffn_down": (WIDTH, INNER)}
    shapes |= {f"blk.{i}.{key}": shape for i in range(2) for key, shape in sizes.items()}
    tensors: dict[str, Any] = {}
    for seed, (key, shape) in enumerate(shapes.items()):
        kind = formats(name)[key.split(".")[-1]]
        tensors[f"{key}.weight"] = random_quants(kind, *shape, seed=seed, scale=spread(kind) / shape[1] ** 0.5)
    ones = [f"blk.{i}.{norm}_norm.weight" for i in range(2) for norm in ("attn", "ffn")]
    tensors |= dict.fromkeys([*ones, "output_norm.weight"], np.ones(WIDTH, np.float32))
    changes = {"embedding_length": WIDTH, "feed_forward_length": INNER, "rope.dimension_count": 64}
    return write_gguf(path, tiny_metadata() | {f"llama.{key}": value for key, value in changes.items()}, tensors)


def spread(kind: str) -> float:
    """The size of a block's float16 numbers for quants of deviation about 1."""
    deviation = dequantise(random_quants(kind, 64, 256, scale=0.01)).std().item()
    return 0.01 / deviation


def decoder(path: Path, backend: str, weights: str) -> Decoder:
    opened = open_checkpoint(path)
    return build_decoder(opened.config, opened.tensors, make_kernels("cpu", weights, 1, backend), "cpu", weights)


@pytest.mark.parametrize("name", ["mixed", *(name for name in FORMATS if name not in DTYPES)])
def test_the_files_numbers_are_used_as_they_are(name: str, tmp_path: Path) -> None:
    """transformers dequantises with the `gguf` package; in float32 and in the file's own formats the bits are equal."""
    from transformers import AutoModelForCausalLM

    path = write(tmp_path / "m.gguf", name)
    ids = text_ids(20)
    reference = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=path.name, dtype=torch.float32).eval()
    with torch.inference_mode():
        wanted = reference(torch.tensor([ids])).logits[0].numpy()
    for backend in BACKENDS:
        assert_all_ways(decoder(path, backend, "f32"), ids, wanted)
    kept, expanded = (in_chunks(decoder(path, "cpu", weights), ids, 7) for weights in ("auto", "f32"))
    assert np.array_equal(kept, expanded)


def test_the_cpu_kernels_keep_every_format_small(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", "mixed")
    kept = decoder(path, "cpu", "auto")
    layer = kept.layers[0]
    assert [part.weight.format for part in layer.qkv] == ["g32q4", "g16q8"]
    assert (kept.embed.format, layer.out.format, kept.head.format) == ("q8_0", "g32q8", "g16q8")
    assert kept.nbytes < 0.35 * decoder(path, "cpu", "f32").nbytes


def test_each_progress_step_is_reported(tmp_path: Path) -> None:
    opened = open_checkpoint(write(tmp_path / "m.gguf", "q8_0"))
    total, steps = sum(stored.nbytes for stored in opened.tensors.values()), []
    tensors: dict[str, Stored] = dict(opened.tensors)
    kernels = make_kernels("cpu", "auto", 1, "cpu")
    build_decoder(opened.config, tensors, kernels, progress=lambda done, of: steps.append((done, of)))
    assert not tensors
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert steps[-1] == (total, total)
    assert len(steps) == 2 + 1 + 2 * 9
