"""What distinguishes one model from another, as data. A family is a table entry, never a subclass.

A configuration comes from a GGUF file's metadata or from a Hugging Face config.json. What either says and the decoder
does not do is refused here by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sooner.errors import ModelError
from sooner.kernels.interface import Activation
from sooner.weights.files import shorten


@dataclass(frozen=True, slots=True)
class Family:
    """One architecture under its GGUF name, which is also its `model_type` at Hugging Face."""

    name: str
    interleaved: bool  # its GGUF files hold query and key rows in the interleaved order (weights/names.py)


FAMILIES: dict[str, Family] = {family.name: family for family in (Family("llama", interleaved=True),)}
ACTIVATIONS: dict[str, Activation] = {"silu": "silu"}


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder's shape. Widths in elements, rope_theta dimensionless. Checks itself; raises ModelError."""

    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    mlp: int
    vocabulary: int
    context: int
    norm_eps: float
    rope_theta: float
    tied: bool
    activation: Activation = "silu"
    eos: frozenset[int] = frozenset()
    bos: int | None = None

    def __post_init__(self) -> None:
        for name, (low, high) in _LIMITS.items():
            value: float = getattr(self, name)
            _require(low <= value <= high, f"{name} is {value}, must be between {low:g} and {high:g}")
        _require(self.heads % self.kv_heads == 0, f"{self.heads} heads do not share {self.kv_heads} kv_heads evenly")
        _require(self.head_size % 2 == 0, f"head_size is {self.head_size}, must be even for rotary positions")
        for token in self.eos if self.bos is None else self.eos | {self.bos}:
            _require(0 <= token < self.vocabulary, f"eos or bos {token} is outside the vocabulary of {self.vocabulary}")

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor that the decoder wants, by our names, with its shape (outputs, inputs)."""
        query, kv = self.heads * self.head_size, self.kv_heads * self.head_size
        layer = {
            "attn_norm": (self.hidden,),
            "q": (query, self.hidden),
            "k": (kv, self.hidden),
            "v": (kv, self.hidden),
            "o": (self.hidden, query),
            "mlp_norm": (self.hidden,),
            "gate": (self.mlp, self.hidden),
            "up": (self.mlp, self.hidden),
            "down": (self.hidden, self.mlp),
        }
        ends = {"embed": (self.vocabulary, self.hidden), "norm": (self.hidden,), "head": (self.vocabulary, self.hidden)}
        if self.tied:
            del ends["head"]
        return ends | {f"layers.{i}.{name}": shape for i in range(self.layers) for name, shape in layer.items()}


_LIMITS: dict[str, tuple[float, float]] = {
    "layers": (1, 1024),
    "hidden": (1, 1 << 17),
    "heads": (1, 1 << 12),
    "kv_heads": (1, 1 << 12),
    "head_size": (2, 1 << 12),
    "mlp": (1, 1 << 20),
    "vocabulary": (1, 1 << 21),
    "context": (1, 1 << 24),
    "norm_eps": (0.0, 1.0),
    "rope_theta": (1.0, 1e12),
}


def from_gguf(metadata: Mapping[str, Any], *, tied: bool) -> ModelConfig:
    """`tied`: the file has no output matrix of its own."""
    family = _family(metadata.get("general.architecture"), "general.architecture")
    values = {key.removeprefix(f"{family.name}."): value for key, value in metadata.items()}
    _refuse(values, _GGUF_NEUTRAL)
    _refuse_unknown([key for key in metadata if key.startswith(f"{family.name}.")], _GGUF_KNOWN, family)
    shape = _shape(values, _GGUF_KEYS)
    for key in ("attention.value_length", "rope.dimension_count"):
        _require(
            _whole(values, key, shape["head_size"]) == shape["head_size"],
            f"{key} {values.get(key)} is not the head size",
        )
    tokens = metadata.get("tokenizer.ggml.tokens")
    return ModelConfig(
        architecture=family.name,
        vocabulary=_whole(values, "vocab_size", len(tokens) if isinstance(tokens, list) else None),
        norm_eps=_real(values, "attention.layer_norm_rms_epsilon"),
        rope_theta=_real(values, "rope.freq_base", 10000.0),
        tied=tied,
        eos=frozenset(_whole(metadata, key) for key in _GGUF_EOS if key in metadata),
        bos=_token(metadata, "tokenizer.ggml.bos_token_id"),
        **shape,
    )


def from_hugging_face(values: Mapping[str, Any], generation: Mapping[str, Any]) -> ModelConfig:
    """`values` is config.json, `generation` is generation_config.json or empty."""
    family = _family(values.get("model_type"), "model_type")
    _refuse(values, _HF_NEUTRAL)
    return ModelConfig(
        architecture=family.name,
        vocabulary=_whole(values, "vocab_size"),
        norm_eps=_real(values, "rms_norm_eps", 1e-6),
        rope_theta=_real(_rope(values), "rope_theta", 10000.0),
        tied=_flag(values, "tie_word_embeddings"),
        activation=_activation(values.get("hidden_act", "silu")),
        eos=_eos(values) | _eos(generation),
        bos=_token(values, "bos_token_id"),
        **_shape(values, _HF_KEYS),
    )


_GGUF_KEYS = {
    "layers": "block_count",
    "hidden": "embedding_length",
    "heads": "attention.head_count",
    "kv_heads": "attention.head_count_kv",
    "head_size": "attention.key_length",
    "mlp": "feed_forward_length",
    "context": "context_length",
}
_HF_KEYS = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_size": "head_dim",
    "mlp": "intermediate_size",
    "context": "max_position_embeddings",
}
_GGUF_EOS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")

# Settings that would change the computation, with the values under which they do not.
_GGUF_NEUTRAL: dict[str, tuple[object, ...]] = {
    "split.count": (0, 1),
    "expert_count": (0,),
    "expert_used_count": (0,),
    "attention.sliding_window": (0,),
    "rope.scaling.type": ("none",),
    "rope.scale_linear": (1.0,),
    "use_parallel_residual": (False,),
}
_HF_NEUTRAL: dict[str, tuple[object, ...]] = {
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "sliding_window": (None,),
    "rope_interleaved": (False,),
    "partial_rotary_factor": (1.0,),
    "quantization_config": (None,),
}
_GGUF_KNOWN = {
    *_GGUF_KEYS.values(),
    *_GGUF_NEUTRAL,
    *("vocab_size", "attention.layer_norm_rms_epsilon", "rope.freq_base", "rope.dimension_count"),
    "attention.value_length",
}
_ROPE_KNOWN = {"rope_type", "type", "rope_theta"}


def _require(ok: bool, message: str) -> None:
    if not ok:
        raise ModelError(f"{message}; the configuration is damaged or not supported")


def _refuse(values: Mapping[str, Any], neutral: Mapping[str, tuple[object, ...]]) -> None:
    for key, allowed in neutral.items():
        value = values.get(key)
        if value is not None and not (isinstance(value, int | float | str) and value in allowed):
            supported = ", ".join(map(repr, allowed))
            raise ModelError(f"{key} is {shorten(value)}, which is not supported; supported: {supported}")


def _refuse_unknown(keys: Iterable[str], known: Collection[str], family: Family) -> None:
    """A setting that we do not know may change the computation."""
    unknown = sorted(key for key in keys if key.removeprefix(f"{family.name}.") not in known)
    if unknown:
        raise ModelError(f"{unknown[0]} is not known here, so this kind of {family.name} is not supported")


def _family(name: object, key: str) -> Family:
    if not isinstance(name, str) or name not in FAMILIES:
        supported = ", ".join(FAMILIES)
        raise ModelError(f"{key} is {shorten(name)}, which is not supported; supported architectures: {supported}")
    return FAMILIES[name]


def _activation(name: object) -> Activation:
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise ModelError(f"hidden_act is {shorten(name)}, which is not supported; supported: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def _shape(values: Mapping[str, Any], keys: Mapping[str, str]) -> dict[str, Any]:
    """The whole numbers that every source gives; kv_heads and head_size may be left to their defaults."""
    shape = {name: _whole(values, keys[name]) for name in ("layers", "hidden", "heads", "mlp", "context")}
    _require(shape["heads"] > 0, f"{keys['heads']} is {shape['heads']}, must be above 0")
    shape["kv_heads"] = _whole(values, keys["kv_heads"], shape["heads"])
    shape["head_size"] = _whole(values, keys["head_size"], shape["hidden"] // shape["heads"])
    return shape


def _whole(values: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """A missing or null value takes the default; without one it is an error."""
    value = values.get(key)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > 1 << 64:
        raise ModelError(f"{key} is {shorten(value)}, must be a whole number; the configuration is damaged")
    return value


def _real(values: Mapping[str, Any], key: str, default: float | None = None) -> float:
    value = values.get(key)
    value = default if value is None else value
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 1e300:
        raise ModelError(f"{key} is {shorten(value)}, must be a finite number; the configuration is damaged")
    return float(value)


def _flag(values: Mapping[str, Any], key: str) -> bool:
    """False unless it is said."""
    value = values.get(key, False)
    if not isinstance(value, bool):
        raise ModelError(f"{key} is {shorten(value)}, must be true or false; the configuration is damaged")
    return value


def _token(values: Mapping[str, Any], key: str) -> int | None:
    return None if values.get(key) is None else _whole(values, key)


def _eos(values: Mapping[str, Any]) -> frozenset[int]:
    """`eos_token_id` is one id, a list of ids, or null."""
    listed = values.get("eos_token_id")
    ids = listed if isinstance(listed, list) else [listed]
    return frozenset(_whole({"eos_token_id": token}, "eos_token_id") for token in ids if token is not None)


def _rope(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The rotary settings: transformers 5 keeps them in `rope_parameters`, older files beside `rope_scaling`."""
    kept = values.get("rope_parameters") or values.get("rope_scaling") or {}
    if not isinstance(kept, dict):
        raise ModelError(f"the rope settings are {shorten(kept)}, must be an object; config.json is damaged")
    kind = kept.get("rope_type", kept.get("type", "default"))
    unknown = sorted(kept.keys() - _ROPE_KNOWN)
    if kind != "default" or unknown:
        what = f"rope scaling {shorten(kind)}" + (f" with {', '.join(unknown)}" if unknown else "")
        raise ModelError(f"{what} is not supported; supported: 'default' without further settings")
    return {"rope_theta": values.get("rope_theta"), **kept}
