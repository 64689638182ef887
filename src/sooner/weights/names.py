"""Tensor names as tables: from each source's names to ours, with every shape checked and nothing left over.

Ours are "embed", "norm", "head" and "layers.{i}." followed by attn_norm, q, k, v, o, mlp_norm, gate, up, down.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from sooner.errors import ModelError
from sooner.kernels.formats import Stored

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class NameMap:
    """Ours -> the source's, "{i}" standing for the layer; `ignored` may be there and carry nothing."""

    source: str
    names: Mapping[str, str]
    ignored: tuple[str, ...] = ()

    def theirs(self, name: str) -> str:
        """The source's name for one of ours."""
        layer = re.search(r"\d+", name)
        if layer is None:
            return self.names[name]
        return self.names[name.replace(layer[0], "{i}", 1)].format(i=layer[0])

    def ignores(self, name: str) -> bool:
        return re.sub(r"\d+", "{i}", name) in self.ignored


GGUF_NAMES = NameMap(
    "GGUF",
    {
        "embed": "token_embd.weight",
        "norm": "output_norm.weight",
        "head": "output.weight",
        "layers.{i}.attn_norm": "blk.{i}.attn_norm.weight",
        "layers.{i}.q": "blk.{i}.attn_q.weight",
        "layers.{i}.k": "blk.{i}.attn_k.weight",
        "layers.{i}.v": "blk.{i}.attn_v.weight",
        "layers.{i}.o": "blk.{i}.attn_output.weight",
        "layers.{i}.mlp_norm": "blk.{i}.ffn_norm.weight",
        "layers.{i}.gate": "blk.{i}.ffn_gate.weight",
        "layers.{i}.up": "blk.{i}.ffn_up.weight",
        "layers.{i}.down": "blk.{i}.ffn_down.weight",
    },
)
HUGGING_FACE_NAMES = NameMap(
    "Hugging Face",
    {
        "embed": "model.embed_tokens.weight",
        "norm": "model.norm.weight",
        "head": "lm_head.weight",
        "layers.{i}.attn_norm": "model.layers.{i}.input_layernorm.weight",
        "layers.{i}.q": "model.layers.{i}.self_attn.q_proj.weight",
        "layers.{i}.k": "model.layers.{i}.self_attn.k_proj.weight",
        "layers.{i}.v": "model.layers.{i}.self_attn.v_proj.weight",
        "layers.{i}.o": "model.layers.{i}.self_attn.o_proj.weight",
        "layers.{i}.mlp_norm": "model.layers.{i}.post_attention_layernorm.weight",
        "layers.{i}.gate": "model.layers.{i}.mlp.gate_proj.weight",
        "layers.{i}.up": "model.layers.{i}.mlp.up_proj.weight",
        "layers.{i}.down": "model.layers.{i}.mlp.down_proj.weight",
    },
    ignored=("model.layers.{i}.self_attn.rotary_emb.inv_freq",),  # old files save this computed table
)


def rename(tensors: Mapping[str, Stored], names: NameMap, shapes: Shapes) -> dict[str, Stored]:
    """The tensors that `shapes` wants, by our names. A missing, leftover or misshapen one raises ModelError."""
    theirs = {name: names.theirs(name) for name in shapes}
    _check_missing(tensors, theirs, shapes)
    _check_leftover(tensors, set(theirs.values()), names)
    for name, shape in shapes.items():
        found = tensors[theirs[name]].shape
        if found != shape:
            raise ModelError(f"tensor {theirs[name]!r} has shape {found}, the configuration wants {shape}")
    return {name: tensors[theirs[name]] for name in shapes}


def _check_missing(tensors: Iterable[str], theirs: Mapping[str, str], shapes: Shapes) -> None:
    missing = [name for name in shapes if theirs[name] not in tensors]
    if missing:
        first = f"tensor {theirs[missing[0]]!r} of shape {shapes[missing[0]]}"
        raise ModelError(f"{first} is missing ({len(missing)} in all); the file is incomplete, download it again")


def _check_leftover(tensors: Mapping[str, Stored], wanted: set[str], names: NameMap) -> None:
    leftover = sorted(name for name in tensors if name not in wanted and not names.ignores(name))
    if leftover:
        first = f"tensor {leftover[0]!r} of shape {tensors[leftover[0]].shape}"
        raise ModelError(f"{first} has no place in this model ({len(leftover)} such); its family is not supported")


def half_split(matrix: Stored, heads: int) -> Stored:
    """Undoes the row order that GGUF files of the llama family have for query and key.

    Their conversion interleaves the two halves of each head, rows (0, half, 1, half + 1, ...), so that rotary pairs
    are neighbours. Our decoder pairs (i, i + half) everywhere.
    """
    pairs = matrix.data.numpy().reshape(heads, -1, 2, matrix.nbytes // matrix.shape[0])
    return Stored(matrix.format, matrix.shape, torch.from_numpy(pairs.swapaxes(1, 2).reshape(-1)))
