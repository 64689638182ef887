"""Tensor names as tables: from each source's names to ours, with every shape checked and nothing left over.

Ours are "embed", "norm", "head" and "layers.{}." followed by

    attn_norm q k v q_norm k_norm o attn_post_norm        attention, with q_bias and the like where there are biases
    mlp_norm gate up down mlp_post_norm                   a dense feed-forward
    router experts.{}.gate experts.{}.up experts.{}.down  a mixture of experts

Several of ours may share one tensor of the source, which then holds their rows one after another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

import torch

from sooner.errors import ModelError
from sooner.kernels.formats import Stored

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class NameMap:
    """Ours -> the source's, "{}" standing for layer and expert; `ignored` may be there and are nothing to a decoder."""

    source: str
    names: Mapping[str, str]
    ignored: tuple[str, ...] = ()

    def theirs(self, name: str) -> str:
        """The source's name for one of ours."""
        return self.names[re.sub(r"\d+", "{}", name)].format(*re.findall(r"\d+", name))

    def ignores(self, name: str) -> bool:
        return re.sub(r"\d+", "{}", name) in self.ignored

    def knows(self, name: str) -> bool:
        """Whether it is one of the source's names."""
        return re.sub(r"\d+", "{}", name) in self.names.values()


def _layers(theirs: str, names: Mapping[str, str], bias: Mapping[str, str] | None = None) -> dict[str, str]:
    """Weights by our names, and biases of those in `bias`, in the layer that `theirs` begins."""
    weights = {f"layers.{{}}.{ours}": f"{theirs}{name}.weight" for ours, name in names.items()}
    return weights | {f"layers.{{}}.{ours}_bias": f"{theirs}{name}.bias" for ours, name in (bias or {}).items()}


_GGUF_ATTENTION = {"q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output"}
_GGUF_LAYER = _GGUF_ATTENTION | {
    "attn_norm": "attn_norm",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "attn_post_norm": "post_attention_norm",
    "mlp_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
    "mlp_post_norm": "post_ffw_norm",
    "router": "ffn_gate_inp",
    "experts.{}.gate": "ffn_gate_exps",
    "experts.{}.up": "ffn_up_exps",
    "experts.{}.down": "ffn_down_exps",
}
_GGUF_ENDS = {"embed": "token_embd.weight", "norm": "output_norm.weight", "head": "output.weight"}
# Divisors of the rotary frequencies: models/sources.py takes them for a part of the configuration.
ROPE_FACTORS = ("rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight")
_FUSED = dict.fromkeys(("q", "k", "v"), "attn_qkv") | dict.fromkeys(("gate", "up"), "ffn_up")

GGUF_NAMES = NameMap("GGUF", _GGUF_ENDS | _layers("blk.{}.", _GGUF_LAYER, _GGUF_ATTENTION), ROPE_FACTORS)
GGUF_FUSED_NAMES = NameMap("GGUF", _GGUF_ENDS | _layers("blk.{}.", _GGUF_LAYER | _FUSED), ROPE_FACTORS)

_HF_ATTENTION = {name: f"self_attn.{name}_proj" for name in ("q", "k", "v", "o")}
_HF_LAYER = _HF_ATTENTION | {
    "attn_norm": "input_layernorm",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
    "mlp_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
    "router": "mlp.gate",
    "experts.{}.gate": "mlp.experts.{}.gate_proj",
    "experts.{}.up": "mlp.experts.{}.up_proj",
    "experts.{}.down": "mlp.experts.{}.down_proj",
}
_POST_NORMS = {
    "attn_post_norm": "post_attention_layernorm",
    "mlp_norm": "pre_feedforward_layernorm",
    "mlp_post_norm": "post_feedforward_layernorm",
}
_MIXTRAL = {
    "router": "block_sparse_moe.gate",
    "experts.{}.gate": "block_sparse_moe.experts.{}.w1",
    "experts.{}.up": "block_sparse_moe.experts.{}.w3",
    "experts.{}.down": "block_sparse_moe.experts.{}.w2",
}
_PHI3 = dict.fromkeys(("q", "k", "v"), "self_attn.qkv_proj") | dict.fromkeys(("gate", "up"), "mlp.gate_up_proj")


def _hugging_face(changes: Mapping[str, str], ignored: Iterable[str] = ()) -> NameMap:
    ends = {"embed": "model.embed_tokens.weight", "norm": "model.norm.weight", "head": "lm_head.weight"}
    names = ends | _layers("model.layers.{}.", _HF_LAYER | dict(changes), _HF_ATTENTION)
    # Old files save this computed table.
    return NameMap("Hugging Face", names, ignored=("model.layers.{}.self_attn.rotary_emb.inv_freq", *ignored))


# Modules that draft (draft/mtp.py), in the same files.
_MIMO_NORMS = {f"{name}_norm": f"{name}_layernorm" for name in ("token", "hidden", "final")}
MIMO_MTP_NAMES = NameMap(
    "an MTP module",
    _layers("model.mtp_layers.{}.", _HF_LAYER | _MIMO_NORMS | {"project": "input_proj"}, _HF_ATTENTION),
)
_QWEN_MTP = {
    "project": "fc",
    "token_norm": "pre_fc_norm_embedding",
    "hidden_norm": "pre_fc_norm_hidden",
    "final_norm": "norm",
}
QWEN_MTP_NAMES = NameMap(
    "an MTP module", _layers("mtp.", _QWEN_MTP) | _layers("mtp.layers.{}.", _HF_LAYER, _HF_ATTENTION)
)

HF_NAMES = _hugging_face({})
HF_MIMO_NAMES = _hugging_face({}, MIMO_MTP_NAMES.names.values())
HF_QWEN3_NAMES = _hugging_face({}, QWEN_MTP_NAMES.names.values())
HF_POST_NORM_NAMES = _hugging_face(_POST_NORMS)
HF_MIXTRAL_NAMES = _hugging_face(_MIXTRAL)
HF_FUSED_NAMES = _hugging_face(_PHI3)


MEDUSA_NAMES = NameMap(
    "Medusa",
    {
        "heads.{}.blocks.{}": "{}.{}.linear.weight",
        "heads.{}.blocks.{}_bias": "{}.{}.linear.bias",
        "heads.{}.out.{}": "{}.{}.weight",
    },
)
_HEAD_ENDS = {"fc": "fc.weight", "fc_bias": "fc.bias", "embed": "embed_tokens.weight"}


def eagle_names(layer: str) -> NameMap:
    """Of EAGLE heads, whose one layer is called `layer`: "midlayer" in the original files of EAGLE-3, else "layers.0".

    input_norm norms the embedding, hidden_norm the feature. offsets: for each output its token less its own number;
    known: for each token whether there is such an output.
    """
    ends = _HEAD_ENDS | {"norm": "norm.weight", "head": "lm_head.weight", "offsets": "d2t", "known": "t2d"}
    parts = _HF_LAYER | {"input_norm": "input_layernorm", "hidden_norm": "hidden_norm"}
    return NameMap("an EAGLE head", ends | _layers(f"{layer}.", parts, _HF_ATTENTION))


def rename(tensors: Mapping[str, Stored], names: NameMap, shapes: Shapes) -> dict[str, Stored]:
    """The tensors that `shapes` wants, by our names. A missing, leftover or misshapen one raises ModelError."""
    groups: dict[str, list[str]] = {}
    for name in shapes:
        groups.setdefault(names.theirs(name), []).append(name)
    _check_missing(tensors, groups, shapes)
    _check_leftover(tensors, groups, names)
    renamed: dict[str, Stored] = {}
    for theirs, ours in groups.items():
        renamed |= zip(ours, _split(theirs, tensors[theirs], [shapes[name] for name in ours]), strict=True)
    return renamed


def _check_missing(tensors: Mapping[str, Stored], groups: Mapping[str, list[str]], shapes: Shapes) -> None:
    missing = [theirs for theirs in groups if theirs not in tensors]
    if missing:
        wanted = _whole_shapes([shapes[name] for name in groups[missing[0]]])[0]
        first = f"tensor {missing[0]!r} of shape {wanted}"
        raise ModelError(f"{first} is missing ({len(missing)} in all); the file is incomplete, download it again")


def _check_leftover(tensors: Mapping[str, Stored], wanted: Iterable[str], names: NameMap) -> None:
    leftover = sorted(name for name in tensors.keys() - set(wanted) if not names.ignores(name))
    if leftover:
        first = f"tensor {leftover[0]!r} of shape {tensors[leftover[0]].shape}"
        raise ModelError(f"{first} has no place in this model ({len(leftover)} such); its family is not supported")


def _whole_shapes(parts: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The shapes that a tensor of these parts may have: its rows in one run, or equal parts stacked."""
    if len(parts) == 1:
        return parts
    stacked = [(len(parts), *parts[0])] if len(set(parts)) == 1 else []
    return [*stacked, (sum(part[0] for part in parts), *parts[0][1:])]


def _split(name: str, whole: Stored, parts: list[tuple[int, ...]]) -> list[Stored]:
    """The parts of one tensor, each a view of its rows."""
    wanted = _whole_shapes(parts)
    if whole.shape not in wanted:
        either = " or ".join(map(str, wanted))
        raise ModelError(f"tensor {name!r} has shape {whole.shape}, the configuration wants {either}")
    sizes = [whole.nbytes * prod(part) // prod(whole.shape) for part in parts]
    pieces = torch.split(whole.data, sizes)
    return [Stored(whole.format, part, piece) for part, piece in zip(parts, pieces, strict=True)]


def half_split(rows: Stored, heads: int) -> Stored:
    """Undoes the row order that GGUF files of the llama family have for query and key, weights and biases.

    Their conversion interleaves the two halves of each head, rows (0, half, 1, half + 1, ...), so that rotary pairs
    are neighbours. Our decoder pairs (i, i + half) everywhere.
    """
    pairs = rows.data.numpy().reshape(heads, -1, 2, rows.nbytes // rows.shape[0])
    return Stored(rows.format, rows.shape, torch.from_numpy(pairs.swapaxes(1, 2).reshape(-1)))
