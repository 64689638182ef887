"""MTP modules in the published layouts: the checkpoint opens as its target, and the module drafts from its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from sooner.draft.heads import HeadDrafter
from sooner.draft.mtp import read_mtp
from sooner.draft.protocol import Target
from sooner.errors import ModelError
from sooner.kernels import make_kernels
from sooner.llm import LLM
from sooner.models.build import build_decoder
from sooner.models.checkpoint import open_checkpoint
from sooner.models.decoder import Decoder
from sooner.testing import check_drafter
from sooner.types import SamplingParams
from tests.draft.test_eagle import assert_logits, features_of
from tests.support.heads import (
    EPS,
    INNER,
    KV,
    QUERY,
    SIZE,
    THETA,
    VOCABULARY,
    WIDTH,
    mtp_reference,
    mtp_tensors,
    norm,
    qwen_mtp_reference,
    qwen_mtp_tensors,
)
from tests.support.tiny_models import CHAT, TOKENS, tiny_tokenizer

IDS = [(7 * i * i + i) % VOCABULARY for i in range(40)]


def write_target(folder: Path, layout: str, extra: Mapping[str, Tensor]) -> Path:
    """A target written by transformers, with the module's tensors beside its own; a Qwen2 may bear MiMo's name."""
    from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(1)
    shape: dict[str, Any] = {
        "vocab_size": len(TOKENS), "hidden_size": WIDTH, "intermediate_size": INNER, "num_hidden_layers": 3,
        "rms_norm_eps": EPS, "num_attention_heads": QUERY, "num_key_value_heads": KV, "max_position_embeddings": 128,
        "tie_word_embeddings": False, "rope_parameters": {"rope_type": "default", "rope_theta": THETA},
        "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    qwen = layout == "qwen3.5"
    model = Qwen3ForCausalLM(Qwen3Config(**shape, head_dim=SIZE)) if qwen else Qwen2ForCausalLM(Qwen2Config(**shape))
    model.save_pretrained(folder)
    settings = json.loads((folder / "config.json").read_text())
    named = {"model_type": "mimo", "architectures": ["MiMoForCausalLM"], "num_nextn_predict_layers": 1}
    settings |= {"mtp_num_hidden_layers": 1} if qwen else named
    (folder / "config.json").write_text(json.dumps(settings))
    save_file(load_file(folder / "model.safetensors") | dict(extra), folder / "model.safetensors")
    tiny_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>", "chat_template": CHAT}))
    return folder


MODULES = {"mimo": (mtp_tensors, mtp_reference), "qwen3.5": (qwen_mtp_tensors, qwen_mtp_reference)}


def write(folder: Path, layout: str) -> Path:
    return write_target(folder, layout, MODULES[layout][0]())


def opened(folder: Path, backend: str = "cpu") -> Decoder:
    checkpoint = open_checkpoint(folder)
    kernels = make_kernels("cpu", "f32", 1, backend)
    return build_decoder(checkpoint.config, checkpoint.tensors, kernels, "cpu", "f32")


@pytest.mark.parametrize("backend", ["torch", "cpu"])
@pytest.mark.parametrize("layout", MODULES)
def test_logits(backend: str, layout: str, tmp_path: Path) -> None:
    make, reference = MODULES[layout]
    tensors = make()
    target = opened(write_target(tmp_path, layout, tensors), backend)
    head = read_mtp(tmp_path, target, "auto")
    weight = load_file(tmp_path / "model.safetensors")["lm_head.weight"]
    features = features_of(target, IDS, head.taps)

    def step(hidden: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        return reference(hidden, target.kernels.embed(target.embed, tokens), tensors, weight)

    normed = norm(features[:, 0], target.norm.weight)
    torch.testing.assert_close(head.fuse(features), normed, rtol=1e-4, atol=1e-4)
    assert_logits(head, features, IDS, step)


@pytest.mark.parametrize(
    ("spec", "layout"), [("mtp", "mimo"), ("mtp:self", "mimo"), ("mtp:{}", "mimo"), ("mtp", "qwen3.5")]
)
def test_by_its_name(spec: str, layout: str, tmp_path: Path) -> None:
    model = str(write(tmp_path, layout))
    params = SamplingParams(temperature=0.8, seed=4, max_tokens=12)
    wanted = LLM(model, threads=1).generate("the thin thing", params)[0].outputs[0]
    got = LLM(model, draft=spec.format(model), draft_tokens=3, threads=1).generate("the thin thing", params)
    assert got[0].outputs[0].token_ids == wanted.token_ids
    assert got[0].outputs[0].stats.drafted > 0


def test_a_model_without_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"drafter 'mtp': .*the folder has no MTP module"):
        LLM(str(write_target(tmp_path, "mimo", {})), draft="mtp", threads=1)
    with pytest.raises(ModelError, match=r"drafter 'mtp': .* is a file"):
        LLM(draft="mtp", threads=1)


@pytest.mark.parametrize(("layout", "named"), [("mimo", "model.mtp_layers.1"), ("qwen3.5", "mtp.layers.1")])
def test_a_second_module_is_refused(layout: str, named: str, tmp_path: Path) -> None:
    tensors = MODULES[layout][0]()
    second = {name.replace("layers.0", "layers.1"): tensor.clone() for name, tensor in tensors.items()}
    with pytest.raises(ModelError, match=rf"{named}.* has no place"):
        read_mtp(tmp_path, opened(write_target(tmp_path, layout, second | tensors)), "auto")


def test_the_conformance_kit_passes(tmp_path: Path) -> None:
    target = opened(write(tmp_path, "mimo"))
    head = read_mtp(tmp_path, target, "auto")
    told = Target(len(TOKENS), 120, frozenset({3}), layers=3, width=WIDTH)
    check_drafter(lambda _: HeadDrafter("mtp", head, len(TOKENS), 256), told, rounds=40)
