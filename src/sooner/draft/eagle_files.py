"""Reads EAGLE heads: original EAGLE-1 and EAGLE-3 folders, and those of the `speculators` library.

Layers are counted in two ways. `speculators` and vLLM name the layer that a state enters; SGLang and SpecForge, in
`eagle_config`, the layer that it leaves. A wrong count costs acceptance and nothing else, so it is looked for
(`draft/numbering.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sooner.draft.eagle import Eagle1, Eagle3
from sooner.errors import ModelError
from sooner.kernels.formats import Stored
from sooner.models.build import Builder
from sooner.models.config import ModelConfig
from sooner.models.decoder import Decoder
from sooner.models.settings import Settings, require
from sooner.models.sources import from_hugging_face
from sooner.weights.files import read_json
from sooner.weights.names import eagle_names, rename
from sooner.weights.safetensors import read_folder

Shapes = dict[str, tuple[int, ...]]
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "norm_before_fc": (False,),
    "norm_output": (False,),
    "parallel_drafting": (False,),
    "logit_scale": (1, 1.0),
    "use_aux_hidden_state": (True,),
    "add_para_norm": (False,),
}


@dataclass(frozen=True, slots=True)
class HeadSettings:
    """What a head's config.json says. layers: as it counts them, None where it does not say."""

    config: ModelConfig
    outputs: int
    taps: tuple[int, ...] | None
    norm_before_residual: bool


def read_settings(values: Mapping[str, Any], target: ModelConfig) -> HeadSettings:
    """values: of config.json, in either layout."""
    outer = Settings(values)
    kind = outer.get("speculators_model_type")
    require(kind in (None, "eagle3"), f"speculators_model_type is {kind!r}, only eagle3 is supported")
    inner = {"model_type": "llama", **outer.mapping("transformer_layer_config")} if kind else values
    nested = outer.mapping("eagle_config")
    for part in (values, inner, nested):
        Settings(part).refuse(_NEUTRAL)
    config = from_hugging_face(inner, {})
    require(config.layers == 1, f"a head of {config.layers} layers, only one is supported")
    require(config.experts is None, "a head with experts")
    _same(config.vocabulary, target.vocabulary, "a vocabulary")
    config = replace(config, context=target.context, norms=("mlp_norm",))
    outputs = outer.whole("draft_vocab_size", config.vocabulary)
    entering, leaving = (_layer_ids(source) for source in (outer, Settings(nested)))
    taps = entering or (leaving and tuple(layer + 1 for layer in leaving))
    return HeadSettings(config, outputs, taps, outer.flag("norm_before_residual"))


def _layer_ids(settings: Settings) -> tuple[int, ...] | None:
    listed = settings.get("eagle_aux_hidden_state_layer_ids")
    if listed is None:
        return None
    good = isinstance(listed, list) and listed and all(type(layer) is int for layer in listed)
    require(bool(good), "eagle_aux_hidden_state_layer_ids is no list of layers")
    return tuple(listed)


def _same(mine: int, target: int, what: str) -> None:
    if mine != target:
        raise ModelError(f"made for {what} of {mine}, the target has {target}; use a head of the same target")


def read_eagle(folder: Path, target: Decoder, weights: str) -> Eagle1 | Eagle3:
    """A head of either kind, told by its tensors. Raises ModelError."""
    settings = read_settings(read_json(folder / "config.json"), target.config)
    tensors = read_folder(folder, more=("i64", "bool"))
    if any(name.endswith("hidden_norm.weight") for name in tensors):
        return _eagle3(settings, tensors, target, weights)
    return _eagle1(settings.config, tensors, target, weights)


def _eagle3(settings: HeadSettings, tensors: dict[str, Stored], target: Decoder, weights: str) -> Eagle3:
    config, layers = settings.config, len(target.layers)
    taps = settings.taps or (2, layers // 2, layers - 3)
    require(
        all(a < b for a, b in pairwise((-1, *taps, layers + 1))),
        f"the head taps layers {taps} of a target of {layers}, they must ascend",
    )
    shapes = _layer_shapes(config, 2 * config.hidden) | {
        "layers.0.input_norm": (config.hidden,),
        "layers.0.hidden_norm": (config.hidden,),
        "fc": (config.hidden, len(taps) * target.config.hidden),
        "norm": (config.hidden,),
        "head": (settings.outputs, config.hidden),
    }
    optional: Shapes = {
        "embed": (config.vocabulary, config.hidden),
        "offsets": (settings.outputs,),
        "known": (config.vocabulary,),
    }
    names = eagle_names("midlayer" if "midlayer.hidden_norm.weight" in tensors else "layers.{}")
    mine = rename(tensors, names, shapes | {n: s for n, s in optional.items() if names.theirs(n) in tensors})
    targets = _targets(mine.pop("offsets", None), mine.pop("known", None), settings.outputs, config.vocabulary)
    builder = Builder(config, mine, target.kernels, target.device, weights)
    if "embed" not in mine:
        _same(config.hidden, target.config.hidden, "embeddings (the file has none of its own)")
    return Eagle3(
        taps,
        targets,
        target.kernels,
        builder.pack("embed", sensitive=True) if "embed" in mine else target.embed,
        builder.pack("fc"),
        builder.norm("layers.0.input_norm"),
        builder.norm("layers.0.hidden_norm"),
        builder.layer(0),
        builder.norm("norm"),
        builder.pack("head", sensitive=True),
        config.activation,
        target.device,
        settings.norm_before_residual,
    )


def _eagle1(config: ModelConfig, tensors: dict[str, Stored], target: Decoder, weights: str) -> Eagle1:
    _same(config.hidden, target.config.hidden, "a width")
    shapes = _layer_shapes(config, config.hidden) | {"fc": (config.hidden, 2 * config.hidden)}
    optional: Shapes = {"fc_bias": (config.hidden,), "embed": (config.vocabulary, config.hidden)}
    names = eagle_names("layers.{}")
    mine = rename(tensors, names, shapes | {n: s for n, s in optional.items() if names.theirs(n) in tensors})
    builder = Builder(config, mine, target.kernels, target.device, weights)
    embed = builder.pack("embed", sensitive=True) if "embed" in mine else target.embed
    return Eagle1(target, builder.pack("fc"), builder.layer(0), embed, config.activation)


def _layer_shapes(config: ModelConfig, inputs: int) -> Shapes:
    """Of the one layer, whose query, key and value read `inputs` numbers."""
    layer = {name: shape for name, shape in config.shapes().items() if name.startswith("layers.0.")}
    wide = {f"layers.0.{name}": (layer[f"layers.0.{name}"][0], inputs) for name in "qkv"}
    return layer | wide


def _targets(offsets: Stored | None, known: Stored | None, outputs: int, vocabulary: int) -> NDArray[np.int64] | None:
    """Of each output the target's token, checked to be different tokens of the vocabulary."""
    if offsets is None:
        require(outputs == vocabulary, f"{outputs} outputs for a vocabulary of {vocabulary}, and no d2t")
        return None
    require(offsets.format == "i64", f"d2t is of type {offsets.format}, must be int64")
    targets: NDArray[np.int64] = np.arange(outputs) + offsets.data.view(torch.int64).numpy()
    inside = bool(((targets >= 0) & (targets < vocabulary)).all())
    require(inside and len(set(targets.tolist())) == outputs, "d2t does not lead to different tokens of the vocabulary")
    if known is not None:
        require(known.format == "bool", f"t2d is of type {known.format}, must be bool")
        marked = np.flatnonzero(known.data.numpy())
        require(np.array_equal(np.sort(targets), marked), "d2t and t2d disagree")
    return targets
