"""Whole models: the same weights from a folder and from a GGUF file, and everything that can be wrong with either."""

from __future__ import annotations

import json
import math
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sooner.errors import ModelError
from sooner.kernels import make_kernels
from sooner.kernels.formats import dequantise
from sooner.models.build import build_decoder
from sooner.models.checkpoint import Checkpoint, naming, open_checkpoint
from sooner.models.locate import find_model
from sooner.models.rope import plain_rope
from tests.support.tiny_models import LAYERS, TOKENS, tiny_metadata, tiny_tensors, write_folder, write_gguf

HF_NAMES = {
    "embed": "model.embed_tokens.weight",
    "norm": "model.norm.weight",
    "head": "lm_head.weight",
    "attn_norm": "input_layernorm.weight",
    "q": "self_attn.q_proj.weight",
    "k": "self_attn.k_proj.weight",
    "v": "self_attn.v_proj.weight",
    "o": "self_attn.o_proj.weight",
    "mlp_norm": "post_attention_layernorm.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
}


def assert_same_weights(ours: Checkpoint, theirs: Any) -> None:
    state = theirs.state_dict()
    for name, stored in ours.tensors.items():
        *layer, last = name.split(".")
        full = f"model.layers.{layer[1]}.{HF_NAMES[last]}" if layer else HF_NAMES[last]
        assert torch.equal(dequantise(stored), state.pop(full).float()), name
    assert not state.keys() - {"lm_head.weight"}


@pytest.mark.parametrize("shard", ["5GB", "50KB"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_folder_of_transformers(tmp_path: Path, shard: str, dtype: torch.dtype) -> None:
    from transformers import AutoModelForCausalLM

    path = write_folder(tmp_path, shard=shard, dtype=dtype)
    checkpoint = open_checkpoint(path)
    assert_same_weights(checkpoint, AutoModelForCausalLM.from_pretrained(path))
    assert checkpoint.config.eos == {2}
    assert checkpoint.description.startswith("llama, 0.1 M parameters, 2 layers, ")


def test_a_gguf_file_as_transformers_reads_it(tmp_path: Path) -> None:
    """Query and key rows are permuted in the file; transformers puts them back on its own."""
    from transformers import AutoModelForCausalLM

    path = write_gguf(tmp_path / "m.gguf")
    checkpoint = open_checkpoint(path)
    reference = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=path.name, dtype=torch.float32)
    assert_same_weights(checkpoint, reference)
    tensors = tiny_tensors()
    assert not np.array_equal(dequantise(checkpoint.tensors["layers.0.q"]).numpy(), tensors["blk.0.attn_q.weight"])
    config = reference.config
    assert checkpoint.config.head_size == config.head_dim
    assert checkpoint.config.attention[0].rope == plain_rope(config.rope_parameters["rope_theta"], config.head_dim)
    assert checkpoint.config.norm_eps == config.rms_norm_eps


def test_a_tied_head(tmp_path: Path) -> None:
    untied = {name: values for name, values in tiny_tensors().items() if name != "output.weight"}
    for checkpoint in (
        open_checkpoint(write_gguf(tmp_path / "m.gguf", tensors=untied)),
        open_checkpoint(write_folder(tmp_path / "folder", tie_word_embeddings=True)),
    ):
        assert checkpoint.config.tied
        assert "head" not in checkpoint.tensors


def test_a_tied_head_that_is_saved_too(tmp_path: Path) -> None:
    path = write_folder(tmp_path)
    edit(path / "config.json", tie_word_embeddings=True)
    with pytest.raises(ModelError, match=r"lm_head.weight differs from model.embed_tokens.weight"):
        open_checkpoint(path)
    rewrite(path, lambda tensors: tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"].clone()})
    assert "head" not in open_checkpoint(path).tensors


def test_the_real_model_opens_quickly() -> None:
    path = find_model("smollm2")
    start = time.process_time()
    checkpoint = open_checkpoint(path)
    assert time.process_time() - start < 2.0  # 0.4 s on an idle machine
    assert checkpoint.description == "llama, 134.5 M parameters, 30 layers, q4_1 x 210, f32 x 61, q8_0 x 1"
    assert checkpoint.config.eos == {2}
    assert checkpoint.tensors["layers.29.down"].shape == (576, 1536)


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def rewrite(folder: Path, change: Any) -> None:
    from safetensors.torch import load_file, save_file

    save_file(change(load_file(folder / "model.safetensors")), folder / "model.safetensors")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model.norm.weight": None}, r"'model.norm.weight' of shape \(64,\) is missing"),
        ({"extra.weight": torch.zeros(3)}, r"'extra.weight' of shape \(3,\) has no place"),
        ({"model.norm.weight": torch.zeros(65)}, r"has shape \(65,\), the configuration wants \(64,\)"),
        ({"model.norm.weight": torch.zeros(64).double()}, "has the type F64, which is not supported"),
    ],
)
def test_spoilt_tensors_in_a_folder(folder: Path, change: dict[str, torch.Tensor | None], message: str) -> None:
    def spoil(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: values for name, values in (tensors | change).items() if values is not None}

    rewrite(folder, spoil)
    with pytest.raises(ModelError, match=f"^{re.escape(str(folder))}: .*{message}"):
        open_checkpoint(folder)


def pack(path: Path) -> None:
    """Numbers are looked at while they are packed: a file is read once."""
    opened = open_checkpoint(path)
    with naming(path):
        build_decoder(opened.config, opened.tensors, make_kernels("cpu", "auto", 1, "torch"))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("kind", ["F32", "F16", "Q8_0", "Q4_1"])
def test_spoilt_numbers_in_a_gguf_file(tmp_path: Path, kind: str, bad: float) -> None:
    tensors = tiny_tensors()
    tensors["blk.1.ffn_up.weight"][3, 40] = bad
    with np.errstate(all="ignore"):
        path = write_gguf(tmp_path / "m.gguf", tensors=tensors, types={"blk.1.ffn_up.weight": kind})
    with pytest.raises(ModelError, match=r"m.gguf: tensor 'layers.1.up' holds NaN or infinite numbers"):
        pack(path)


@pytest.mark.parametrize("name", ["model.norm.weight", "model.layers.1.self_attn.q_proj.weight", "lm_head.weight"])
def test_spoilt_numbers_in_a_folder(folder: Path, name: str) -> None:
    rewrite(folder, lambda tensors: tensors | {name: tensors[name].index_fill(0, torch.tensor([5]), math.nan)})
    with pytest.raises(ModelError, match=f"^{re.escape(str(folder))}: tensor '.*' holds NaN or infinite numbers"):
        pack(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rope_thing.weight": np.ones(8, np.float32)}, r"'rope_thing.weight' of shape \(8,\) has no place"),
        ({"rope_freqs.weight": np.ones(7, np.float32)}, r"short_factor is \[1.0, .*, must be 8 positive numbers"),
        ({"rope_freqs.weight": np.ones((8, 1), np.float32)}, r"shape \(8, 1\), must be a divisor for each rotary pair"),
        ({"blk.0.attn_q.bias": np.ones(64, np.float32)}, r"'blk.1.attn_q.bias' of shape \(64,\) is missing"),
        ({"blk.1.attn_q.bias": np.ones(64, np.float32)}, r"'blk.1.attn_q.bias' of shape \(64,\) has no place"),
        (
            {"blk.0.attn_v.weight": np.ones((64, 64), np.float32)},
            r"has shape \(64, 64\), the configuration wants \(32, 64\)",
        ),
    ],
)
def test_spoilt_tensors_in_a_gguf_file(tmp_path: Path, change: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        open_checkpoint(write_gguf(tmp_path / "m.gguf", tensors=tiny_tensors() | change))


def test_more_layers_promised_than_there_are(tmp_path: Path) -> None:
    metadata = tiny_metadata() | {"llama.block_count": LAYERS + 1}
    with pytest.raises(ModelError, match=r"'blk.2.attn_q.weight' of shape \(64, 64\) is missing \(9 in all\)"):
        open_checkpoint(write_gguf(tmp_path / "m.gguf", metadata))


def test_a_tokenizer_larger_than_the_model(folder: Path) -> None:
    rows = len(TOKENS) - 1
    cut = ("model.embed_tokens.weight", "lm_head.weight")
    rewrite(folder, lambda tensors: tensors | {name: tensors[name][:rows].clone() for name in cut})
    edit(folder / "config.json", vocab_size=rows)
    with pytest.raises(ModelError, match=f"the tokenizer has {len(TOKENS)} tokens, the model {rows}"):
        open_checkpoint(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_missing_files_of_a_folder(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(ModelError, match=name):
        open_checkpoint(folder)


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="No such file or directory; check the path"):
        open_checkpoint(tmp_path / "m.gguf")
