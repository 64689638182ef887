"""Writes a trained EAGLE-3 head in the published layouts, so that other engines can serve it too, and reads it back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from sooner.errors import InputError
from sooner.train.eagle import ROPE_THETA, EagleHead, EagleShape

Format = Literal["eagle3", "speculators"]
FORMATS: tuple[Format, ...] = ("eagle3", "speculators")
DRAFTED = 3  # tokens that a server drafts unless it is told otherwise


def export_eagle(head: EagleHead, folder: Path, layout: Format, target: str) -> None:
    """target: the name that the `speculators` layout gives its verifier. Matrices become bf16."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: _stored(tensor) for name, tensor in head.state_dict().items()}
    if layout == "speculators":
        tensors = {name.replace("midlayer.", "layers.0."): tensor for name, tensor in tensors.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = speculators_config(head.shape, target) if layout == "speculators" else eagle_config(head.shape)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


@dataclass(frozen=True, slots=True)
class Trained:
    """A head that was exported before: tensors by our names, the layers that it reads, and its tokens as target ids."""

    folder: Path
    tensors: dict[str, Tensor]
    taps: tuple[int, ...]
    tokens: Tensor


def read_eagle(folder: Path) -> Trained:
    """What `export_eagle` wrote, in either layout. Raises InputError where the folder holds something else."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        kept = load_file(folder / "model.safetensors")
        taps = tuple(int(tap) for tap in config["eagle_aux_hidden_state_layer_ids"])
        tokens = kept["d2t"] + torch.arange(len(kept["d2t"]))
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise InputError(
            f"--start {folder} holds no EAGLE-3 head as sooner train eagle writes it ({error}); leave it out"
        ) from None
    return Trained(folder, {name.replace("layers.0.", "midlayer."): t for name, t in kept.items()}, taps, tokens)


def put_weights(head: EagleHead, trained: Trained) -> None:
    try:
        head.load_state_dict(trained.tensors)
    except RuntimeError as error:
        line = " ".join(str(error).split())
        raise InputError(f"the head in {trained.folder} does not fit this target ({line}); leave --start out") from None


def _stored(tensor: Tensor) -> Tensor:
    return tensor.to(torch.bfloat16).contiguous() if tensor.is_floating_point() else tensor.contiguous()


def layer_config(shape: EagleShape) -> dict[str, Any]:
    """The one layer as a Llama of its own."""
    return {
        "model_type": "llama",
        "hidden_size": shape.hidden,
        "num_hidden_layers": 1,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_size,
        "intermediate_size": shape.mlp,
        "hidden_act": "silu",
        "rms_norm_eps": shape.norm_eps,
        "rope_theta": ROPE_THETA,
        "max_position_embeddings": shape.context,
        "vocab_size": shape.vocabulary,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
    }


def eagle_config(shape: EagleShape) -> dict[str, Any]:
    """Of the original layout; vLLM and we read the layers at the top, counted by what enters them, SGLang those in
    eagle_config, counted by what leaves them."""
    return layer_config(shape) | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "torch_dtype": "bfloat16",
        "draft_vocab_size": shape.draft_vocabulary,
        "target_hidden_size": shape.hidden,
        "norm_before_residual": True,
        "eagle_aux_hidden_state_layer_ids": list(shape.taps),
        "eagle_config": {
            "use_aux_hidden_state": True,
            "eagle_aux_hidden_state_layer_ids": [tap - 1 for tap in shape.taps],
        },
    }


def speculators_config(shape: EagleShape, target: str) -> dict[str, Any]:
    return {
        "architectures": ["Eagle3Speculator"],
        "torch_dtype": "bfloat16",
        "speculators_model_type": "eagle3",
        "speculators_version": "0.1.0",
        "draft_vocab_size": shape.draft_vocabulary,
        "target_hidden_size": shape.hidden,
        "norm_before_residual": True,
        "eagle_aux_hidden_state_layer_ids": list(shape.taps),
        "transformer_layer_config": layer_config(shape),
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": DRAFTED}],
            "verifier": {"name_or_path": target, "architectures": ["LlamaForCausalLM"]},
        },
    }
