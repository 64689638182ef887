"""A configuration from a GGUF file's metadata or from a Hugging Face config.json, both read by one set of names.

What either says and the decoder does not do is refused here by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sooner.errors import ModelError
from sooner.kernels.formats import Stored, dequantise
from sooner.kernels.interface import Activation
from sooner.models.config import LIMITS, Attention, Experts, ModelConfig
from sooner.models.families import FAMILIES, GGUF_FAMILIES, Family, never
from sooner.models.rope import Rope, read_rope
from sooner.models.settings import Settings, refuse_unknown, require
from sooner.weights.names import ROPE_FACTORS

ACTIVATIONS: dict[str, Activation] = {"silu": "silu", "gelu_pytorch_tanh": "gelu_tanh"}

_HF_KEYS = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_size": "head_dim",
    "mlp": "intermediate_size",
    "expert_mlp": "moe_intermediate_size",
    "experts": "num_local_experts",
    "experts_used": "num_experts_per_tok",
    "renormalise": "norm_topk_prob",
    "vocabulary": "vocab_size",
    "context": "max_position_embeddings",
    "norm_eps": "rms_norm_eps",
    "tied": "tie_word_embeddings",
    "activation": "hidden_act",
    "local_rope_theta": "rope_local_base_freq",
    "attention_softcap": "attn_logit_softcapping",
    "logit_softcap": "final_logit_softcapping",
    "eos": "eos_token_id",
    "bos": "bos_token_id",
}
_HF_OTHER_KEYS = {"activation": "hidden_activation", "experts": "num_experts"}  # in some files
_GGUF_KEYS = {
    "layers": "block_count",
    "hidden": "embedding_length",
    "heads": "attention.head_count",
    "kv_heads": "attention.head_count_kv",
    "head_size": "attention.key_length",
    "mlp": "feed_forward_length",
    "expert_mlp": "expert_feed_forward_length",
    "experts": "expert_count",
    "experts_used": "expert_used_count",
    "renormalise": "expert_weights_norm",
    "vocabulary": "vocab_size",
    "context": "context_length",
    "norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_theta": "rope.freq_base",
    "local_rope_theta": "rope.freq_base_swa",
    "attention_softcap": "attn_logit_softcapping",
    "logit_softcap": "final_logit_softcapping",
    "sliding_window": "attention.sliding_window",
    "sliding_window_pattern": "attention.sliding_window_pattern",
    "rope_size": "rope.dimension_count",
    "rope_type": "rope.scaling.type",
    "rope_factor": "rope.scaling.factor",
    "rope_original": "rope.scaling.original_context_length",
    "rope_amplitude": "rope.scaling.attn_factor",
    "rope_beta_fast": "rope.scaling.yarn_beta_fast",
    "rope_beta_slow": "rope.scaling.yarn_beta_slow",
}
_GGUF_EOS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")

# Settings that would change the computation, with the values under which they do not.
_GGUF_NEUTRAL: dict[str, tuple[object, ...]] = {
    "split.count": (0, 1),
    "rope.scale_linear": (1.0,),
    "use_parallel_residual": (False,),
    "attention.causal": (True,),
    "expert_shared_count": (0,),
    "expert_weights_scale": (0.0, 1.0),
    "expert_gating_func": (1,),  # softmax
    "expert_group_count": (0, 1),
    "expert_group_used_count": (0, 1),
    "rope.scaling.finetuned": (False, True),  # tells of the training
}
_HF_NEUTRAL: dict[str, tuple[object, ...]] = {
    "mlp_bias": (False,),
    "rope_interleaved": (False,),
    "quantization_config": (None,),
    "clip_qkv": (None,),
    "decoder_sparse_step": (1,),
    "use_bidirectional_attention": (False,),
}


def from_hugging_face(values: Mapping[str, Any], generation: Mapping[str, Any]) -> ModelConfig:
    """`values` is config.json, `generation` is generation_config.json or empty."""
    family: Family = Settings(values).choice("model_type", FAMILIES)
    keys = _HF_KEYS | {name: key for name, key in _HF_OTHER_KEYS.items() if key in values}
    settings = Settings(values, keys, {"activation": "silu", "norm_eps": 1e-6, **family.defaults})
    settings.refuse(_HF_NEUTRAL)
    require(not settings.get("mlp_only_layers"), "mlp_only_layers lists layers without experts")
    scalar = settings.optional("query_pre_attn_scalar")
    require(scalar is None or scalar > 0, f"query_pre_attn_scalar is {scalar}, must be above 0")
    biases = ("q", "k", "v", "o") if settings.flag("attention_bias") else family.biases
    eos = settings.tokens("eos") | Settings(generation, _HF_KEYS).tokens("eos")
    return _config(
        family,
        settings,
        _hf_ropes(settings),
        vocabulary=settings.whole("vocabulary"),
        tied=settings.flag("tied"),
        activation=settings.choice("activation", ACTIVATIONS),
        biases=biases,
        attention_scale=None if scalar is None else scalar**-0.5,
        eos=eos,
        bos=None if settings.get("bos") is None else settings.whole("bos"),
    )


def from_gguf(metadata: Mapping[str, Any], tensors: Mapping[str, Stored]) -> ModelConfig:
    """The tensors tell what no key does: a head of its own, biases, and divisors of the rotary frequencies."""
    family: Family = Settings(metadata).choice("general.architecture", GGUF_FAMILIES)
    prefix = f"{family.gguf}."
    known = {prefix + key for key in _GGUF_KNOWN}
    refuse_unknown((key for key in metadata if key.startswith(prefix)), known, str(family.gguf))
    values = {key.removeprefix(prefix): value for key, value in metadata.items()}
    settings = Settings(values, _GGUF_KEYS, {**family.defaults, "head_size": None, **family.gguf_defaults})
    settings.refuse(_GGUF_NEUTRAL)
    layers, hidden, heads = (settings.whole(name) for name in ("layers", "hidden", "heads"))
    listed = metadata.get("tokenizer.ggml.tokens")
    ids = Settings(metadata)
    return _config(
        family,
        settings,
        _gguf_ropes(family, settings, tensors),
        vocabulary=settings.whole("vocabulary", len(listed) if isinstance(listed, list) else None),
        tied=family.gguf_names.names["head"] not in tensors,
        activation=ACTIVATIONS[family.defaults.get("activation", "silu")],
        biases=tuple(name for name in ("q", "k", "v", "o") if _has_bias(family, tensors, name)),
        attention_scale=(hidden / max(heads, 1)) ** -0.5 if layers == family.narrow and hidden > 0 else None,
        eos=frozenset(ids.whole(key) for key in _GGUF_EOS if key in metadata),
        bos=None if ids.get("tokenizer.ggml.bos_token_id") is None else ids.whole("tokenizer.ggml.bos_token_id"),
    )


_GGUF_KNOWN = {*_GGUF_KEYS.values(), *_GGUF_NEUTRAL, "attention.value_length"}

RopeSettings = Mapping[str, Any]


def _config(family: Family, settings: Settings, ropes: tuple[RopeSettings, RopeSettings], **fields: Any) -> ModelConfig:
    """What both sources say alike. `ropes`: rotary settings of layers without and with a sliding window."""
    sizes = {name: settings.whole(name) for name in ("layers", "hidden", "heads", "mlp", "context")}
    for name, size in sizes.items():
        low, high = LIMITS[name]
        require(low <= size <= high, f"{name} is {size}, must be between {low:g} and {high:g}")
    head_size = settings.whole("head_size", sizes["hidden"] // sizes["heads"])
    require(2 <= head_size <= LIMITS["head_size"][1], f"head_size is {head_size}, must be between 2 and 4096")
    value_size = settings.whole("attention.value_length", head_size)
    require(value_size == head_size, f"attention.value_length {value_size} is not the head size {head_size}")
    full, local = (read_rope(rope, head_size, sizes["context"]) for rope in ropes)
    experts = _experts(family, settings)
    return ModelConfig(
        architecture=family.name,
        attention=_attention(family, settings, full, local),
        hidden=sizes["hidden"],
        heads=sizes["heads"],
        kv_heads=settings.whole("kv_heads", sizes["heads"]),
        head_size=head_size,
        mlp=sizes["mlp"] if experts is None else settings.whole("expert_mlp", sizes["mlp"]),
        context=sizes["context"],
        norm_eps=settings.real("norm_eps"),
        norms=family.norms,
        qk_norm=family.qk_norm,
        experts=experts,
        attention_softcap=settings.optional("attention_softcap"),
        logit_softcap=settings.optional("logit_softcap"),
        embed_scale=sizes["hidden"] ** 0.5 if family.embed_scaled else 1.0,
        **fields,
    )


def _experts(family: Family, settings: Settings) -> Experts | None:
    count = settings.whole("experts", None if family.mixture else 0)
    if not count:
        require(not family.mixture, f"a {family.name} has experts, this one has none")
        return None
    return Experts(count, settings.whole("experts_used"), settings.flag("renormalise"))


def _attention(family: Family, settings: Settings, full: Rope, local: Rope) -> tuple[Attention, ...]:
    window = settings.whole("sliding_window", 0)
    near, far = Attention(local, window), Attention(full)

    def layer(windowed: bool, rotary: bool) -> Attention:
        attention = near if windowed else far
        return attention if rotary else replace(attention, rope=None)

    return tuple(map(layer, _windowed(family, settings), _rotary(settings)))


_LAYER_TYPES = {"full_attention": False, "sliding_attention": True}


def _windowed(family: Family, settings: Settings) -> list[bool]:
    """Of each layer, whether it has the window: as the source lists it, or by the family's pattern."""
    layers, listed = settings.whole("layers"), settings.get("layer_types")
    require(listed is None or isinstance(listed, list), "layer_types is no list")
    named = [Settings({"layer_types": each}).choice("layer_types", _LAYER_TYPES) for each in listed or ()]
    if not settings.whole("sliding_window", 0) or settings.get("use_sliding_window") is False:
        return [False] * layers
    if listed is None:
        require(family.windowed is not never, f"{settings.key('sliding_window')} is not for a {family.name}")
        return [family.windowed(settings, i) for i in range(layers)]
    require(len(named) == layers, f"layer_types has {len(named)} entries for {layers} layers")
    return named


def _rotary(settings: Settings) -> list[bool]:
    """Of each layer, whether it has rotary positions: SmolLM3 leaves every fourth without."""
    layers = settings.whole("layers")
    listed = settings.get("no_rope_layers")
    if listed is None:
        every = settings.whole("no_rope_layer_interval", 0)
        return [not every or (i + 1) % every != 0 for i in range(layers)]
    good = isinstance(listed, list) and len(listed) >= layers and all(isinstance(i, int) for i in listed)
    require(good, f"no_rope_layers must be {layers} numbers, 0 for a layer without rotary positions")
    return [bool(each) for each in listed[:layers]]


def _hf_ropes(settings: Settings) -> tuple[RopeSettings, RopeSettings]:
    """transformers 5 keeps rotary settings in `rope_parameters`, older files beside `rope_scaling`."""
    kept = settings.mapping("rope_parameters") or settings.mapping("rope_scaling")
    full = {name: settings.get(name) for name in ("rope_theta", "partial_rotary_factor")}
    theta = settings.get("local_rope_theta")
    if kept.keys() == _LAYER_TYPES.keys():
        nested = Settings(kept)
        return {**full, **nested.mapping("full_attention")}, {
            "rope_theta": theta,
            **nested.mapping("sliding_attention"),
        }
    full |= {key: value for key, value in kept.items() if value is not None}
    original = settings.get("original_max_position_embeddings")
    if original is not None and kept.get("rope_type", kept.get("type", "default")) != "default":
        full["original_max_position_embeddings"] = original
    return full, full if theta is None else {"rope_theta": theta}


def _gguf_ropes(family: Family, settings: Settings, tensors: Mapping[str, Stored]) -> tuple[RopeSettings, RopeSettings]:
    """The divisors of Llama 3 and of LongRoPE are tensors in GGUF files."""
    head = settings.whole("head_size", settings.whole("hidden") // max(settings.whole("heads"), 1))
    size = settings.whole("rope_size", head)
    require(size == head or not family.interleaved, f"rope.dimension_count {size} is not the head size {head}")
    full: dict[str, Any] = {"rope_theta": settings.real("rope_theta", 10000.0)}
    full |= {"partial_rotary_factor": size / max(head, 1)}
    kind = settings.get("rope_type") or ("linear" if settings.get("rope_factor") else "none")
    original = {"original_max_position_embeddings": settings.get("rope_original")}
    freqs, short, long = (_divisors(tensors, name) for name in ROPE_FACTORS)
    if kind in ("none", "longrope") and (freqs or short or long):
        near, far = freqs or short, freqs or long
        full |= {"rope_type": "longrope", "short_factor": near, "long_factor": far} | original
        full |= {"attention_factor": 1.0 if freqs else settings.get("rope_amplitude")}
    else:
        settings.refuse({"rope_amplitude": (1.0,)})
        require(freqs is short is long is None, f"rope scaling {kind} comes with divisors")
    if kind not in ("none", "longrope"):
        full |= {"rope_type": kind, "factor": settings.optional("rope_factor")} | (original if kind == "yarn" else {})
        full |= {name: settings.get(f"rope_{name}") for name in ("beta_fast", "beta_slow") if kind == "yarn"}
    local = settings.optional("local_rope_theta")
    return full, full if local is None else {"rope_theta": local}


def _divisors(tensors: Mapping[str, Stored], name: str) -> list[float] | None:
    if name not in tensors:
        return None
    stored = tensors[name]
    if len(stored.shape) != 1 or stored.shape[0] > LIMITS["head_size"][1]:
        raise ModelError(f"tensor {name!r} has shape {stored.shape}, must be a divisor for each rotary pair")
    return list(dequantise(stored).tolist())


def _has_bias(family: Family, tensors: Mapping[str, Stored], name: str) -> bool:
    table = family.gguf_names.names
    return f"layers.{{}}.{name}_bias" in table and table[f"layers.{{}}.{name}_bias"].format(0) in tensors
