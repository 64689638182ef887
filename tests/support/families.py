"""A tiny checkpoint of each family with random weights, as a folder written by transformers and as a GGUF file.

What a family is known for is switched on: biases, windows shorter than the tests' texts, layers without rotary
positions, rotary scaling, heads of many sizes. The GGUF files follow llama.cpp's conversion, with tensor names from the
`gguf` package's own tables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from sooner.kernels.formats import dequantise
from sooner.weights.gguf import read_gguf
from tests.support.tiny_models import CHAT, TOKENS, tiny_metadata, tiny_tokenizer, write_gguf

WINDOW = 8
LAYERS = 3
_BASE = {
    "vocab_size": len(TOKENS),
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}
_EXPERTS = {"num_experts_per_tok": 2, "num_local_experts": 5}
_LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip
_YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}
_LONGROPE = {
    "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
    "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5], "long_factor": [1.0, 1.5, 2.0, 3.0, 5.0, 8.0],
}  # fmt: skip


@dataclass(frozen=True)
class Tiny:
    """`model_type` at Hugging Face with these changes to a tiny configuration; `arch` in GGUF files.

    like: the model_type of transformers that computes the same, where it has none of that name.
    """

    model_type: str
    arch: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    like: str = ""


FAMILIES: dict[str, Tiny] = {
    "llama": Tiny(
        "llama", "llama", {"hidden_size": 96, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 64}
    ),
    "llama with biases": Tiny("llama", "llama", {"attention_bias": True, "tie_word_embeddings": True}),
    "llama 3.1": Tiny("llama", "llama", {"rope_parameters": _LLAMA3}),
    "llama, linear": Tiny("llama", "llama", {"rope_parameters": {"rope_type": "linear", "factor": 4.0}}),
    "mistral": Tiny("mistral", "", {"sliding_window": WINDOW}),
    "qwen2": Tiny("qwen2", "qwen2", {"rope_parameters": _YARN}),
    "qwen2, upper windows": Tiny(
        "qwen2", "", {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1}
    ),
    "mimo": Tiny("mimo", "", like="qwen2"),
    "qwen3": Tiny("qwen3", "qwen3", {"num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 128}),
    "smollm3": Tiny("smollm3", "smollm3", {"num_hidden_layers": 5, "tie_word_embeddings": True}),
    "phi3": Tiny("phi3", "phi3", {"sliding_window": WINDOW}),
    "phi3, far": Tiny("phi3", "phi3", {"rope_parameters": _LONGROPE, "original_max_position_embeddings": 20}),
    "phi3, near": Tiny(
        "phi3", "phi3",
        {"rope_parameters": _LONGROPE | {"attention_factor": 1.25}, "original_max_position_embeddings": 128},
    ),
    "gemma2": Tiny(
        "gemma2", "gemma2",
        {
            "head_dim": 256, "num_key_value_heads": 1, "sliding_window": WINDOW, "query_pre_attn_scalar": 256,
            "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0, "tie_word_embeddings": True,
        },
    ),
    "gemma3": Tiny(
        "gemma3_text", "gemma3",
        {
            "num_hidden_layers": 7, "sliding_window": WINDOW, "query_pre_attn_scalar": 16, "tie_word_embeddings": True,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
        },
    ),
    "olmo2": Tiny(
        "olmo2", "olmo2",
        {"num_attention_heads": 5, "num_key_value_heads": 5, "head_dim": 32, "hidden_size": 160},
    ),
    "mixtral": Tiny("mixtral", "llama", _EXPERTS),
    "qwen3_moe": Tiny("qwen3_moe", "qwen3moe", _EXPERTS | {"moe_intermediate_size": 32, "norm_topk_prob": True}),
    "olmoe": Tiny("olmoe", "olmoe", {"num_experts_per_tok": 3, "num_experts": 6}),
}  # fmt: skip
IN_GGUF = [name for name, tiny in FAMILIES.items() if tiny.arch]


@cache
def reference(name: str) -> Any:
    """transformers' model with weights of a size that makes every token of the context matter."""
    from transformers import AutoConfig, AutoModelForCausalLM

    tiny = FAMILIES[name]
    config = AutoConfig.for_model(tiny.like or tiny.model_type, **(_BASE | dict(tiny.changes)))
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for weight in model.parameters():
            deviation = 0.2 if weight.dim() == 1 else 1.2 * weight.shape[-1] ** -0.5
            weight.copy_((weight if weight.dim() == 1 else 0.0) + deviation * torch.randn_like(weight))
        model.get_input_embeddings().weight.mul_(0.7)
    return model


def write_family(name: str, folder: Path) -> Path:
    reference(name).save_pretrained(folder)
    settings = json.loads((folder / "config.json").read_text()) | {"model_type": FAMILIES[name].model_type}
    (folder / "config.json").write_text(json.dumps(settings))
    tiny_tokenizer().save(str(folder / "tokenizer.json"))
    names = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "chat_template": CHAT}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    return folder


def logits(name: str, ids: list[int]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """transformers' logits [len(ids), V] in one pass."""
    with torch.inference_mode():
        return reference(name)(torch.tensor([ids])).logits[0].numpy()  # type: ignore[no-any-return]


def write_family_gguf(
    name: str, folder: Path, path: Path, kind: str = "F32", padding: int = 0, numbers_of: Path | None = None
) -> Path:
    """From the folder that `write_family` wrote. kind: GGML's name of the type of matrices; routers stay F32 as in
    conversions. `padding` rows follow the embedding's. numbers_of: the tensors of this GGUF file instead."""
    config = json.loads((folder / "config.json").read_text())
    tensors = gguf_tensors(name, load_file(folder / "model.safetensors"), config)
    if numbers_of is not None:
        tensors = {key: dequantise(stored).numpy() for key, stored in read_gguf(numbers_of).tensors.items()}
    metadata = gguf_metadata(name, config)
    if padding:
        metadata |= {f"{FAMILIES[name].arch}.vocab_size": len(TOKENS) + padding}
        for end in {"token_embd.weight", "output.weight"} & tensors.keys():
            tensors[end] = np.pad(tensors[end], ((0, padding), (0, 0)))
    types = {key: kind for key, values in tensors.items() if values.ndim > 1 and "ffn_gate_inp" not in key}
    return write_gguf(path, metadata, tensors, types, FAMILIES[name].arch)


def gguf_metadata(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    arch = FAMILIES[name].arch
    rope = config["rope_parameters"]
    full = rope.get("full_attention", rope)
    heads = config["num_attention_heads"]
    size = config.get("head_dim") or config["hidden_size"] // heads
    keys = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": heads,
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": size,
        "attention.value_length": size,
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "rope.freq_base": full["rope_theta"],
        "rope.dimension_count": int(size * full.get("partial_rotary_factor", 1.0)),
    }
    theirs = {
        "sliding_window": "attention.sliding_window",
        "attn_logit_softcapping": "attn_logit_softcapping",
        "final_logit_softcapping": "final_logit_softcapping",
        "num_experts_per_tok": "expert_used_count",
        "num_local_experts": "expert_count",
        "num_experts": "expert_count",
        "moe_intermediate_size": "expert_feed_forward_length",
        "original_max_position_embeddings": "rope.scaling.original_context_length",
    }
    keys |= {key: config[ours] for ours, key in theirs.items() if config.get(ours) is not None}
    if full["rope_type"] in ("linear", "yarn"):
        keys |= {"rope.scaling.type": full["rope_type"], "rope.scaling.factor": full["factor"]}
    if full["rope_type"] == "yarn":
        keys["rope.scaling.original_context_length"] = full["original_max_position_embeddings"]
    if full["rope_type"] == "longrope":
        keys["rope.scaling.attn_factor"] = float(reference(name).model.rotary_emb.attention_scaling)
    tokenizer = {key: value for key, value in tiny_metadata().items() if key.startswith("tokenizer.")}
    return {f"{arch}.{key}": value for key, value in keys.items()} | tokenizer


def gguf_tensors(name: str, state: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Any]:
    """The state by its GGUF names, changed as conversions change it."""
    arch = FAMILIES[name].arch
    number = next(kind for kind, known in gguf.MODEL_ARCH_NAMES.items() if known == arch)
    names = gguf.get_tensor_name_map(number, config["num_hidden_layers"])
    found: dict[str, Any] = {}
    for key, tensor in _stacked(state).items():
        theirs = names.get_name(key, try_suffixes=(".weight", ".bias"))
        assert theirs is not None, key
        found[theirs] = _changed(arch, key, tensor, config).float().numpy()
    return found | _rope_tensors(name)


def _stacked(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The experts of a layer in one tensor, under the names that conversions use."""
    loose = {key: tensor for key, tensor in state.items() if ".experts." not in key}
    groups: dict[str, list[Tensor]] = {}
    for key in sorted(state.keys() - loose.keys(), key=lambda key: [int(n) for n in re.findall(r"\.(\d+)\.", key)]):
        whole = re.sub(r"\.experts\.\d+\.", ".experts.", key).replace(".block_sparse_moe.", ".feed_forward.")
        groups.setdefault(whole.replace("model.layers", "layers") if "feed_forward" in whole else whole, []).append(
            state[key]
        )
    return loose | {key: torch.stack(tensors) for key, tensors in groups.items()}


def _changed(arch: str, key: str, tensor: Tensor, config: Mapping[str, Any]) -> Tensor:
    if arch.startswith("gemma") and key.endswith("norm.weight"):
        return tensor + 1.0
    if arch in ("llama", "smollm3") and re.search(r"self_attn\.[qk]_proj", key):
        heads = config["num_attention_heads" if ".q_proj" in key else "num_key_value_heads"]
        return tensor.reshape(heads, 2, len(tensor) // heads // 2, -1).swapaxes(1, 2).reshape(tensor.shape)
    return tensor


def _rope_tensors(name: str) -> dict[str, Any]:
    """The divisors of the frequencies that conversions write as tensors."""
    model = reference(name).model
    rope = model.config.rope_parameters
    if rope.get("rope_type") == "llama3":
        inverse = model.rotary_emb.inv_freq
        plain = rope["rope_theta"] ** (-torch.arange(len(inverse)) / len(inverse))
        return {"rope_freqs.weight": (plain / inverse).float().numpy()}
    if rope.get("rope_type") == "longrope":
        return {f"rope_factors_{x}.weight": np.array(rope[f"{x}_factor"], np.float32) for x in ("short", "long")}
    return {}


def text_ids(length: int, seed: int = 0) -> list[int]:
    """Ids of a text that repeats itself now and then, so that lookup drafters find something."""
    random = np.random.default_rng(seed)
    words = [random.integers(3, len(TOKENS), 4).tolist() for _ in range(4)]
    ids: list[int] = []
    while len(ids) < length:
        ids += words[int(random.integers(len(words)))]
    return ids[:length]
