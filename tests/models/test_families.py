"""Configurations as the hub has them, in the words of older transformers, against transformers' own reading of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sooner.models.config import Experts, ModelConfig
from sooner.models.families import FAMILIES
from sooner.models.rope import read_rope
from sooner.models.sources import from_hugging_face

SIZES = {"num_hidden_layers": 8, "vocab_size": 1000, "intermediate_size": 96, "bos_token_id": 1, "eos_token_id": [2, 7]}
FACTORS = {"short_factor": [1.0 + i / 10 for i in range(48)], "long_factor": [1.0 + i for i in range(48)]}

# What else the hub's files say; what they leave out takes the family's own default.
HUB: dict[str, dict[str, Any]] = {
    "meta-llama/Llama-3.2-1B": {
        "model_type": "llama", "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "tie_word_embeddings": True,
        "rope_scaling": {
            "factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
    },
    "mistralai/Mistral-7B-v0.1": {
        "model_type": "mistral", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
        "max_position_embeddings": 32768, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 4096,
    },
    "mistralai/Mistral-7B-v0.3": {
        "model_type": "mistral", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
        "max_position_embeddings": 32768, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "sliding_window": None,
    },
    "Qwen/Qwen2.5-0.5B-Instruct": {
        "model_type": "qwen2", "hidden_size": 896, "num_attention_heads": 14, "num_key_value_heads": 2,
        "max_position_embeddings": 32768, "max_window_layers": 21, "rope_theta": 1000000.0, "sliding_window": 32768,
        "tie_word_embeddings": True, "use_sliding_window": False,
    },
    "Qwen/Qwen2.5-7B-Instruct with yarn and windows": {
        "model_type": "qwen2", "hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4,
        "max_position_embeddings": 32768, "max_window_layers": 5, "rope_theta": 1000000.0, "sliding_window": 131072,
        "use_sliding_window": True,
        "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"},
    },
    "Qwen/Qwen3-0.6B": {
        "model_type": "qwen3", "attention_bias": False, "head_dim": 128, "hidden_size": 1024, "num_attention_heads": 16,
        "num_key_value_heads": 8, "max_position_embeddings": 40960, "max_window_layers": 28, "rope_scaling": None,
        "rope_theta": 1000000, "sliding_window": None, "tie_word_embeddings": True, "use_sliding_window": False,
    },
    "HuggingFaceTB/SmolLM3-3B": {
        "model_type": "smollm3", "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 4,
        "max_position_embeddings": 65536, "no_rope_layer_interval": 4, "no_rope_layers": [1, 1, 1, 0] * 2,
        "rope_scaling": None, "rope_theta": 5000000.0, "sliding_window": None, "use_sliding_window": False,
    },
    "microsoft/Phi-3-mini-4k-instruct": {
        "model_type": "phi3", "hidden_size": 3072, "num_attention_heads": 32, "num_key_value_heads": 32,
        "max_position_embeddings": 4096, "original_max_position_embeddings": 4096, "rope_scaling": None,
        "rope_theta": 10000.0, "sliding_window": 2047, "tie_word_embeddings": False,
    },
    "microsoft/Phi-3.5-mini-instruct": {
        "model_type": "phi3", "hidden_size": 3072, "num_attention_heads": 32, "num_key_value_heads": 32,
        "max_position_embeddings": 131072, "original_max_position_embeddings": 4096, "rope_theta": 10000.0,
        "sliding_window": 262144, "rope_scaling": FACTORS | {"type": "longrope"},
    },
    "microsoft/Phi-4-mini-instruct": {
        "model_type": "phi3", "hidden_size": 3072, "num_attention_heads": 24, "num_key_value_heads": 8,
        "max_position_embeddings": 131072, "original_max_position_embeddings": 4096, "partial_rotary_factor": 0.75,
        "rope_scaling": FACTORS | {"type": "longrope"}, "sliding_window": 262144, "tie_word_embeddings": True,
    },
    "google/gemma-2-2b": {
        "model_type": "gemma2", "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "head_dim": 256,
        "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2304,
        "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 8192,
        "query_pre_attn_scalar": 256, "rope_theta": 10000.0, "sliding_window": 4096,
    },
    "google/gemma-3-1b-it": {
        "model_type": "gemma3_text", "attn_logit_softcapping": None, "final_logit_softcapping": None, "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152, "num_attention_heads": 4,
        "num_key_value_heads": 1, "max_position_embeddings": 32768, "query_pre_attn_scalar": 256,
        "rope_local_base_freq": 10000, "rope_scaling": None, "rope_theta": 1000000, "sliding_window": 512,
        "sliding_window_pattern": 6,
    },
    "a Gemma 3 with scaling": {
        "model_type": "gemma3_text", "head_dim": 128, "hidden_size": 2560, "num_attention_heads": 8,
        "num_key_value_heads": 4, "max_position_embeddings": 131072, "sliding_window": 1024,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    },
    "allenai/OLMo-2-0425-1B": {
        "model_type": "olmo2", "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 16,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 500000,
    },
    "mistralai/Mixtral-8x7B-v0.1": {
        "model_type": "mixtral", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
        "max_position_embeddings": 32768, "num_experts_per_tok": 2, "num_local_experts": 8, "sliding_window": None,
    },
    "Qwen/Qwen3-30B-A3B": {
        "model_type": "qwen3_moe", "decoder_sparse_step": 1, "head_dim": 128, "hidden_size": 2048,
        "max_position_embeddings": 40960, "max_window_layers": 48, "mlp_only_layers": [], "moe_intermediate_size": 768,
        "norm_topk_prob": True, "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8,
        "num_key_value_heads": 4, "rope_scaling": None, "rope_theta": 1000000.0, "sliding_window": None,
        "use_sliding_window": False,
    },
    "allenai/OLMoE-1B-7B-0924": {
        "model_type": "olmoe", "clip_qkv": None, "hidden_size": 2048, "max_position_embeddings": 4096,
        "norm_topk_prob": False, "num_attention_heads": 16, "num_experts": 64, "num_experts_per_tok": 8,
        "num_key_value_heads": 16, "rope_scaling": None, "rope_theta": 10000.0,
    },
}  # fmt: skip


def ours(name: str) -> ModelConfig:
    return from_hugging_face(SIZES | HUB[name], {})


@pytest.mark.parametrize("name", HUB)
def test_old_words_and_transformers_own_mean_the_same(name: str) -> None:
    """transformers reads the hub's file, fills in its defaults and writes its own form."""
    from transformers import AutoConfig

    values = {key: value for key, value in (SIZES | HUB[name]).items() if key != "model_type"}
    written = AutoConfig.for_model(HUB[name]["model_type"], **values).to_dict()
    assert from_hugging_face(written, {}) == ours(name)


def test_every_family_has_a_file_here() -> None:
    beside = {"mimo"}  # unknown to transformers: tests/parity reads its files as those of Qwen2
    assert {values["model_type"] for values in HUB.values()} == FAMILIES.keys() - beside


@pytest.mark.parametrize(
    ("name", "windows"),
    [
        ("mistralai/Mistral-7B-v0.1", [4096] * 8),
        ("mistralai/Mistral-7B-v0.3", [None] * 8),
        ("Qwen/Qwen2.5-0.5B-Instruct", [None] * 8),
        ("Qwen/Qwen2.5-7B-Instruct with yarn and windows", [None] * 5 + [131072] * 3),
        ("microsoft/Phi-3-mini-4k-instruct", [2047] * 8),
        ("google/gemma-2-2b", [4096, None] * 4),
        ("google/gemma-3-1b-it", [512] * 5 + [None] + [512] * 2),
    ],
)
def test_which_layers_have_a_window(name: str, windows: list[int | None]) -> None:
    assert [layer.window for layer in ours(name).attention] == windows


def test_what_else_is_read() -> None:
    assert [layer.rope is None for layer in ours("HuggingFaceTB/SmolLM3-3B").attention] == [
        False,
        False,
        False,
        True,
    ] * 2
    gemma = ours("google/gemma-2-2b")
    assert (gemma.attention_softcap, gemma.logit_softcap, gemma.embed_scale) == (50.0, 30.0, 48.0)
    assert (gemma.activation, gemma.tied, gemma.attention_scale) == ("gelu_tanh", True, 1 / 16)
    assert ours("allenai/OLMo-2-0425-1B").norms == ("attn_post_norm", "mlp_post_norm")
    assert ours("Qwen/Qwen2.5-0.5B-Instruct").biases == ("q", "k", "v")
    assert ours("mistralai/Mixtral-8x7B-v0.1").experts == Experts(8, 2, renormalise=True)
    assert ours("Qwen/Qwen3-30B-A3B").experts == Experts(128, 8, renormalise=True)
    assert ours("Qwen/Qwen3-30B-A3B").mlp == 768
    assert ours("allenai/OLMoE-1B-7B-0924").experts == Experts(64, 8, renormalise=False)


@pytest.mark.parametrize("name", [name for name, values in HUB.items() if values.get("rope_scaling")])
def test_scaled_frequencies_are_transformers_own(name: str) -> None:
    from transformers import AutoConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    values = {key: value for key, value in (SIZES | HUB[name]).items() if key != "model_type"}
    config = AutoConfig.for_model(HUB[name]["model_type"], **values)
    nested = "full_attention" in config.rope_parameters
    settings = config.rope_parameters["full_attention"] if nested else config.rope_parameters
    which = {"layer_type": "full_attention"} if nested else {}
    rope = read_rope(settings, ours(name).head_size, config.max_position_embeddings)
    for length, mine in ((1, rope.frequencies), (config.max_position_embeddings, rope.far or rope.frequencies)):
        theirs, amplitude = ROPE_INIT_FUNCTIONS[settings["rope_type"]](config, "cpu", seq_len=length, **which)
        torch.testing.assert_close(torch.tensor(mine), theirs, rtol=2e-6, atol=0.0)
        assert rope.amplitude == pytest.approx(amplitude)


def test_far_frequencies_are_for_a_context_beyond_the_original_one() -> None:
    rope = ours("microsoft/Phi-3.5-mini-instruct").attention[0].rope
    assert rope is not None
    angles = [torch.atan2(rope.tables(context)[1][1], rope.tables(context)[0][1]) for context in (4096, 4097)]
    assert torch.allclose(angles[0], torch.tensor(rope.frequencies))
    assert rope.far is not None
    assert torch.allclose(angles[1], torch.tensor(rope.far))
