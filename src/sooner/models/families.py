"""The families, one table entry each. What an entry does not say is as in Llama."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sooner.models.config import QkNorm
from sooner.models.settings import Settings
from sooner.weights.names import (
    GGUF_FUSED_NAMES,
    GGUF_NAMES,
    HF_FUSED_NAMES,
    HF_MIMO_NAMES,
    HF_MIXTRAL_NAMES,
    HF_NAMES,
    HF_POST_NORM_NAMES,
    HF_QWEN3_NAMES,
    NameMap,
)

Windowed = Callable[[Settings, int], bool]  # whether a layer has the sliding window, where nothing lists the layers


never: Windowed = lambda settings, layer: False  # noqa: E731, ARG005
always: Windowed = lambda settings, layer: True  # noqa: E731, ARG005


def upper(settings: Settings, layer: int) -> bool:
    return settings.flag("use_sliding_window") and layer >= settings.whole("max_window_layers")


def all_but_every_nth(settings: Settings, layer: int) -> bool:
    return (layer + 1) % max(settings.whole("sliding_window_pattern"), 1) != 0


@dataclass(frozen=True, slots=True)
class Family:
    """`name` is its model_type at Hugging Face, `gguf` its architecture in GGUF files, None where another serves.

    interleaved: its GGUF files hold query and key rows in the interleaved order (weights/names.py).
    norm_offset: at Hugging Face, norms are kept less this. embed_scaled: embeddings are multiplied by sqrt(hidden).
    mixture: feed-forwards are always mixtures of experts.
    narrow: a GGUF file of so many layers means a scale of (hidden / heads)^-1/2, which it has no key for.
    defaults: of settings that config.json leaves out, by the names of models/sources.py. gguf_defaults: where those of
    GGUF files differ.
    """

    name: str
    gguf: str | None
    interleaved: bool = False
    norms: tuple[str, ...] = ("attn_norm", "mlp_norm")
    norm_offset: float = 0.0
    qk_norm: QkNorm = "none"
    biases: tuple[str, ...] = ()
    embed_scaled: bool = False
    windowed: Windowed = never
    mixture: bool = False
    narrow: int | None = None
    hf_names: NameMap = HF_NAMES
    gguf_names: NameMap = GGUF_NAMES
    defaults: Mapping[str, Any] = field(default_factory=dict)
    gguf_defaults: Mapping[str, Any] = field(default_factory=dict)


_FOUR_NORMS = ("attn_norm", "attn_post_norm", "mlp_norm", "mlp_post_norm")
_UPPER = {"use_sliding_window": False, "max_window_layers": 28, "sliding_window": 4096}
# GGUF files do not tell which layers of a Qwen have the window: one that has a window is refused.
_UPPER_IN_GGUF = {"use_sliding_window": True, "max_window_layers": None, "sliding_window": None}
_GEMMA = {"tied": True, "activation": "gelu_pytorch_tanh", "head_size": 256, "sliding_window": 4096}

_TABLE = (
    Family("llama", "llama", interleaved=True, gguf_defaults={"renormalise": True}),  # with Mistral's and Mixtral's
    Family("mistral", None, windowed=always, defaults={"sliding_window": 4096}),
    Family(
        "qwen2",
        "qwen2",
        biases=("q", "k", "v"),
        windowed=upper,
        defaults=_UPPER,
        gguf_defaults=_UPPER_IN_GGUF,
    ),
    Family(
        "mimo",
        None,
        biases=("q", "k", "v"),
        windowed=upper,
        hf_names=HF_MIMO_NAMES,
        defaults=_UPPER,
    ),
    Family(
        "qwen3",
        "qwen3",
        qk_norm="head",
        windowed=upper,
        hf_names=HF_QWEN3_NAMES,
        defaults=_UPPER | {"head_size": 128},
        gguf_defaults=_UPPER_IN_GGUF,
    ),
    Family(
        "smollm3",
        "smollm3",
        interleaved=True,
        defaults={"rope_theta": 2000000.0, "tied": True, "no_rope_layer_interval": 4},
    ),
    Family(
        "phi3",
        "phi3",
        windowed=always,
        hf_names=HF_FUSED_NAMES,
        gguf_names=GGUF_FUSED_NAMES,
        defaults={"norm_eps": 1e-5},
    ),
    Family(
        "gemma2",
        "gemma2",
        norms=_FOUR_NORMS,
        norm_offset=1.0,
        embed_scaled=True,
        windowed=all_but_every_nth,
        narrow=46,
        hf_names=HF_POST_NORM_NAMES,
        defaults=_GEMMA
        | {
            "query_pre_attn_scalar": 256,
            "attention_softcap": 50.0,
            "logit_softcap": 30.0,
            "sliding_window_pattern": 2,
        },
    ),
    Family(
        "gemma3_text",
        "gemma3",
        norms=_FOUR_NORMS,
        norm_offset=1.0,
        qk_norm="head",
        embed_scaled=True,
        windowed=all_but_every_nth,
        narrow=62,
        hf_names=HF_POST_NORM_NAMES,
        defaults=_GEMMA
        | {
            "query_pre_attn_scalar": 256,
            "rope_theta": 1000000.0,
            "local_rope_theta": 10000.0,
            "sliding_window_pattern": 6,
        },
        gguf_defaults={"sliding_window": None},
    ),
    Family(
        "olmo2",
        "olmo2",
        norms=("attn_post_norm", "mlp_post_norm"),
        qk_norm="width",
        hf_names=HF_POST_NORM_NAMES,
        defaults={"norm_eps": 1e-5},
    ),
    Family(
        "mixtral",
        None,
        windowed=always,
        mixture=True,
        hf_names=HF_MIXTRAL_NAMES,
        defaults={"norm_eps": 1e-5, "rope_theta": 1000000.0, "renormalise": True},
    ),
    Family("qwen3_moe", "qwen3moe", qk_norm="head", mixture=True, gguf_defaults={"renormalise": True}),
    Family("olmoe", "olmoe", qk_norm="width", mixture=True, defaults={"norm_eps": 1e-5}),
)
FAMILIES: dict[str, Family] = {family.name: family for family in _TABLE}
GGUF_FAMILIES: dict[str, Family] = {family.gguf: family for family in _TABLE if family.gguf is not None}
