"""Configurations from both sources, and mutated ones."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sooner.errors import ModelError
from sooner.kernels.formats import store
from sooner.models.config import Attention, ModelConfig
from sooner.models.rope import plain_rope
from sooner.models.sources import from_gguf, from_hugging_face
from tests.support.tiny_models import tiny_metadata

HEAD = store(torch.zeros(1))
GGUF = {"general.architecture": "llama"} | tiny_metadata()
SMOLLM2 = json.loads("""{
    "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 1,
    "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 576, "initializer_range": 0.04, "intermediate_size": 1536,
    "is_llama_config": true, "max_position_embeddings": 8192, "mlp_bias": false, "model_type": "llama",
    "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3, "pad_token_id": 2,
    "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_interleaved": false, "rope_scaling": null,
    "rope_theta": 100000, "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_cache": true,
    "vocab_size": 49152}""")


def test_hugging_face() -> None:
    assert from_hugging_face(SMOLLM2, {}) == ModelConfig(
        architecture="llama",
        attention=(Attention(plain_rope(100000.0, 64)),) * 30,
        hidden=576,
        heads=9,
        kv_heads=3,
        head_size=64,
        mlp=1536,
        vocabulary=49152,
        context=8192,
        norm_eps=1e-5,
        tied=True,
        eos=frozenset({2}),
        bos=1,
    )


def test_transformers_5_keeps_rope_elsewhere() -> None:
    values = {key: value for key, value in SMOLLM2.items() if not key.startswith("rope")}
    values["rope_parameters"] = {"rope_theta": 5000.0, "rope_type": "default"}
    assert from_hugging_face(values, {}).attention[0].rope == plain_rope(5000.0, 64)


def test_gguf() -> None:
    config = from_gguf(GGUF, {"output.weight": HEAD})
    assert (config.layers, config.hidden, config.heads, config.kv_heads, config.head_size) == (2, 64, 4, 2, 16)
    assert (config.mlp, config.context, config.vocabulary, config.tied) == (96, 128, 264, False)
    assert config.eos == {2}
    assert config.bos == 1


def test_the_head_size_may_differ_from_hidden_over_heads() -> None:
    sizes = {"llama.attention.key_length": 32, "llama.attention.value_length": 32, "llama.rope.dimension_count": 32}
    assert from_gguf(GGUF | sizes, {}).shapes()["layers.0.q"] == (128, 64)
    assert from_hugging_face(SMOLLM2 | {"head_dim": 128}, {}).shapes()["layers.29.o"] == (576, 9 * 128)


@pytest.mark.parametrize(
    ("config", "generation", "eos"),
    [
        (2, None, {2}),
        ([2, 3], None, {2, 3}),
        (None, None, set()),
        (None, [7], {7}),
        (2, 5, {2, 5}),
        ([2], [2, 6], {2, 6}),
    ],
)
def test_eos_is_one_or_several_or_none(config: Any, generation: Any, eos: set[int]) -> None:
    assert from_hugging_face(SMOLLM2 | {"eos_token_id": config}, {"eos_token_id": generation}).eos == eos


def test_eos_of_gguf_includes_the_end_of_a_turn() -> None:
    assert from_gguf(GGUF | {"tokenizer.ggml.eot_token_id": 0}, {}).eos == {0, 2}
    none = {key: value for key, value in GGUF.items() if "eos" not in key}
    assert from_gguf(none, {}).eos == set()


HF_CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"model_type": "mamba"}, "model_type is 'mamba', which is not supported; supported: llama, mistral, qwen2"),
    ({"model_type": None}, "model_type is None"),
    ({"model_type": ["llama"]}, "model_type is ['llama']"),
    ({"mlp_bias": True}, "mlp_bias is True, which is not supported; supported: False"),
    ({"sliding_window": 4096}, "sliding_window is not for a llama"),
    ({"layer_types": ["full_attention", "linear_attention"]}, "layer_types is 'linear_attention', which is not"),
    ({"layer_types": "full_attention"}, "layer_types is no list"),
    ({"attention_bias": "yes"}, "attention_bias is 'yes', must be true or false"),
    ({"rope_interleaved": True}, "rope_interleaved is True"),
    ({"partial_rotary_factor": 0.01}, "0 of 64 elements of a head are rotary"),
    ({"partial_rotary_factor": 1.5}, "96 of 64 elements of a head are rotary"),
    ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config is {'quant_method': 'gptq'}"),
    ({"hidden_act": "relu"}, "hidden_act is 'relu', which is not supported; supported: silu"),
    ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope scaling 'dynamic' is not supported; supported: def"),
    ({"rope_scaling": {"type": "linear", "factor": 0}}, "factor of the rope settings is 0.0, must be above 0"),
    ({"rope_scaling": {"type": "linear", "mscale": 1}}, "rope scaling 'linear' with 'mscale' is not supported"),
    ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor is None, must be a finite number"),
    (
        {"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1}},
        "low_freq_factor 4.0 must be below high_freq_factor 1.0",
    ),
    ({"rope_parameters": {"rope_type": "yarn"}}, "factor is None, must be a finite number"),
    ({"rope_scaling": {"type": "longrope", "short_factor": [1.0]}}, "short_factor is [1.0], must be 32 positive"),
    ({"rope_scaling": {"type": "longrope", "short_factor": [0.0] * 32}}, "short_factor is [0.0"),
    ({"rope_scaling": {"factor": 2.0}}, "rope scaling 'default' with 'factor' is not supported"),
    ({"rope_scaling": "linear"}, "rope_scaling is 'linear', must be an object"),
    ({"num_hidden_layers": 0}, "layers is 0, must be between 1 and 1024"),
    ({"num_hidden_layers": 10**9}, "layers is 1000000000"),
    ({"num_hidden_layers": None}, "num_hidden_layers is None, must be a whole number"),
    ({"num_hidden_layers": 2.5}, "num_hidden_layers is 2.5"),
    ({"num_hidden_layers": True}, "num_hidden_layers is True"),
    ({"num_hidden_layers": "30"}, "num_hidden_layers is '30'"),
    ({"num_hidden_layers": 10**999}, "num_hidden_layers is 1000"),
    ({"num_attention_heads": 0}, "heads is 0, must be between 1 and"),
    ({"num_attention_heads": -9}, "heads is -9, must be between 1 and"),
    ({"num_key_value_heads": 4}, "9 heads do not share 4 kv_heads evenly"),
    ({"num_key_value_heads": 0}, "kv_heads is 0"),
    ({"head_dim": 63}, "63 of 63 elements of a head are rotary, must be even"),
    ({"head_dim": 1 << 20}, "head_size is 1048576"),
    ({"hidden_size": -576}, "hidden is -576"),
    ({"max_position_embeddings": 0}, "context is 0"),
    ({"max_position_embeddings": 2**40}, "context is 1099511627776"),
    ({"vocab_size": 2**40}, "vocabulary is 1099511627776"),
    ({"vocab_size": 2}, "eos or bos 2 is outside the vocabulary of 2"),
    ({"rms_norm_eps": math.nan}, "rms_norm_eps is nan, must be a finite number"),
    ({"rms_norm_eps": -1.0}, "norm_eps is -1.0, must be between 0 and 1"),
    ({"rope_theta": math.inf}, "rope_theta is inf"),
    ({"rope_theta": 0}, "rope_theta is 0.0, must be between 1 and"),
    ({"rope_theta": "10000"}, "rope_theta is '10000'"),
    ({"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes', must be true or false"),
    ({"eos_token_id": "</s>"}, "eos_token_id is '</s>', must be a whole number"),
    ({"eos_token_id": [2, "x"]}, "eos_token_id is 'x'"),
    ({"eos_token_id": 50000}, "eos or bos 50000 is outside the vocabulary of 49152"),
    ({"eos_token_id": -1}, "eos or bos -1 is outside"),
    ({"bos_token_id": 49152}, "eos or bos 49152 is outside"),
]


@pytest.mark.parametrize(("change", "message"), HF_CHANGES)
def test_a_mutated_hugging_face_config(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError) as caught:
        from_hugging_face(SMOLLM2 | change, {})
    assert message in str(caught.value)


GGUF_CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"general.architecture": "gpt-oss"}, "general.architecture is 'gpt-oss', which is not supported; supported"),
    ({"general.architecture": "x" * 10**6}, "general.architecture is 'xxx"),
    ({"llama.block_count": np.zeros(3)}, "block_count is array"),
    ({"llama.attention.head_count_kv": np.array([2, 2])}, "attention.head_count_kv is array"),
    ({"llama.expert_count": 8}, "expert_used_count is None"),
    ({"llama.expert_count": 8, "llama.expert_used_count": 9}, "9 of 8 experts are in use"),
    ({"llama.expert_count": 1 << 20, "llama.expert_used_count": 2}, "have 2097152 experts, at most 32768"),
    ({"llama.expert_shared_count": 1}, "expert_shared_count is 1, which is not supported"),
    ({"llama.attention.sliding_window": 4096}, "attention.sliding_window is not for a llama"),
    ({"llama.attention.sliding_window": np.array([1, 2])}, "attention.sliding_window is array"),
    ({"llama.rope.scaling.type": "ntk"}, "rope scaling 'ntk' is not supported; supported: default, linear"),
    ({"llama.rope.scaling.type": "yarn"}, "factor is None"),
    ({"llama.rope.scaling.attn_factor": 2.0}, "rope.scaling.attn_factor is 2.0, which is not supported"),
    ({"llama.rope.scaling.yarn_log_multiplier": 0.1}, "llama.rope.scaling.yarn_log_multiplier is not known here"),
    ({"llama.logit_scale": 2.0}, "llama.logit_scale is not known here"),
    ({"llama.rope.dimension_count": 8}, "rope.dimension_count 8 is not the head size"),
    ({"llama.attention.value_length": 8}, "attention.value_length 8 is not the head size"),
    ({"split.count": 3}, "split.count is 3"),
    ({"llama.vocab_size": "many"}, "vocab_size is 'many'"),
    ({"tokenizer.ggml.tokens": 7}, "vocab_size is None"),
    ({"tokenizer.ggml.eos_token_id": 9999}, "eos or bos 9999 is outside the vocabulary of 264"),
    ({"llama.rope.freq_base": math.nan}, "rope.freq_base is nan"),
]


@pytest.mark.parametrize(("change", "message"), GGUF_CHANGES)
def test_mutated_gguf_metadata(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError) as caught:
        from_gguf(GGUF | change, {})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=500, derandomize=True, deadline=None)
@given(key=st.sampled_from(sorted(SMOLLM2)), value=ANYTHING)
def test_no_value_of_any_kind_breaks_the_configuration(key: str, value: Any) -> None:
    try:
        from_hugging_face(SMOLLM2 | {key: value}, {key: value})
    except ModelError as error:
        assert "\n" not in str(error)


def test_shapes_cover_what_the_decoder_wants() -> None:
    shapes = from_gguf(GGUF, {"output.weight": HEAD}).shapes()
    assert len(shapes) == 3 + 2 * 9
    assert shapes["layers.1.k"] == (32, 64)
    assert shapes["layers.1.down"] == (64, 96)
    assert "head" not in from_gguf(GGUF, {}).shapes()
