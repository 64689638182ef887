"""Tiny targets, and heads on their hidden states with random weights, in exactly the published files.

Beside them stands an independent forward of each head in plain torch, over whole sequences, without a cache.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from sooner.kernels.cpu import CpuKernels
from sooner.kernels.formats import store
from sooner.models.build import build_decoder
from sooner.models.config import Attention, ModelConfig
from sooner.models.decoder import Decoder
from sooner.models.rope import plain_rope

WIDTH, QUERY, KV, SIZE, INNER, VOCABULARY, CONTEXT, EPS = 32, 2, 1, 16, 48, 41, 640, 1e-5
OUTPUTS = 23  # of the reduced vocabulary
THETA = 10000.0


def target_config(layers: int, window: int | None = None) -> ModelConfig:
    return ModelConfig(
        architecture="llama",
        attention=(Attention(plain_rope(THETA, SIZE), window),) * layers,
        hidden=WIDTH,
        heads=QUERY,
        kv_heads=KV,
        head_size=SIZE,
        mlp=INNER,
        vocabulary=VOCABULARY,
        context=CONTEXT,
        norm_eps=EPS,
        tied=False,
    )


def random_tensors(shapes: Mapping[str, tuple[int, ...]], seed: int) -> dict[str, Tensor]:
    """Large enough in scale that attention is far from uniform; vectors lie about 1."""
    rng = torch.Generator().manual_seed(seed)
    return {
        name: 1 + 0.2 * torch.randn(shape, generator=rng)
        if len(shape) == 1
        else torch.randn(shape, generator=rng) * 1.5 * shape[1] ** -0.5
        for name, shape in shapes.items()
    }


def build_target(config: ModelConfig, tensors: Mapping[str, Tensor]) -> Decoder:
    """On the C++ kernels, whose rows are exact."""
    return build_decoder(config, {name: store(t) for name, t in tensors.items()}, CpuKernels(1))


@cache
def target(layers: int = 8, seed: int = 0) -> Decoder:
    config = target_config(layers)
    return build_target(config, random_tensors(config.shapes(), seed))


def layer_shapes(prefix: str, inputs: int) -> dict[str, tuple[int, ...]]:
    q, kv = QUERY * SIZE, KV * SIZE
    return {
        f"{prefix}.self_attn.q_proj.weight": (q, inputs),
        f"{prefix}.self_attn.k_proj.weight": (kv, inputs),
        f"{prefix}.self_attn.v_proj.weight": (kv, inputs),
        f"{prefix}.self_attn.o_proj.weight": (WIDTH, q),
        f"{prefix}.mlp.gate_proj.weight": (INNER, WIDTH),
        f"{prefix}.mlp.up_proj.weight": (INNER, WIDTH),
        f"{prefix}.mlp.down_proj.weight": (WIDTH, INNER),
        f"{prefix}.post_attention_layernorm.weight": (WIDTH,),
    }


def layer_settings(**changes: Any) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "num_hidden_layers": 1,
        "num_attention_heads": QUERY,
        "num_key_value_heads": KV,
        "head_dim": SIZE,
        "max_position_embeddings": CONTEXT,
        "rope_theta": THETA,
        "rms_norm_eps": EPS,
        "hidden_act": "silu",
        "vocab_size": VOCABULARY,
        "tie_word_embeddings": False,
    } | changes


def vocabulary_map(outputs: int = OUTPUTS, seed: int = 3) -> tuple[Tensor, Tensor]:
    """d2t int64 [outputs], offsets, and t2d bool [VOCABULARY]."""
    chosen = torch.randperm(VOCABULARY, generator=torch.Generator().manual_seed(seed))[:outputs].sort().values
    marked = torch.zeros(VOCABULARY, dtype=torch.bool)
    marked[chosen] = True
    return chosen - torch.arange(outputs), marked


def eagle3_tensors(layer: str = "midlayer", seed: int = 1, outputs: int = OUTPUTS) -> dict[str, Tensor]:
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (WIDTH, 3 * WIDTH),
        f"{layer}.hidden_norm.weight": (WIDTH,),
        f"{layer}.input_layernorm.weight": (WIDTH,),
        "norm.weight": (WIDTH,),
        "lm_head.weight": (outputs, WIDTH),
    }
    tensors = random_tensors(shapes | layer_shapes(layer, 2 * WIDTH), seed)
    tensors["d2t"], tensors["t2d"] = vocabulary_map(outputs)
    return tensors


def eagle3_settings(layout: str, norm_before_residual: bool = False, **changes: Any) -> dict[str, Any]:
    """config.json in the "original" or in the "speculators" layout."""
    if layout == "original":
        own = {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": OUTPUTS}
        return layer_settings() | own | {"norm_before_residual": norm_before_residual} | changes
    return {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_version": "0.2.0",
        "draft_vocab_size": OUTPUTS,
        "norm_before_residual": norm_before_residual,
        "target_hidden_size": None,
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
            "verifier": {"name_or_path": "tiny", "architectures": ["LlamaForCausalLM"]},
        },
        "transformer_layer_config": layer_settings(),
    } | changes


def eagle1_tensors(seed: int = 1) -> dict[str, Tensor]:
    shapes: dict[str, tuple[int, ...]] = {
        "embed_tokens.weight": (VOCABULARY, WIDTH),
        "fc.weight": (WIDTH, 2 * WIDTH),
        "fc.bias": (WIDTH,),
    }
    return random_tensors(shapes | layer_shapes("layers.0", WIDTH), seed)


def write_head(folder: Path, settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(settings))
    save_file(dict(tensors), folder / "model.safetensors")
    return folder


def norm(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * weight


def rotate(x: Tensor) -> Tensor:
    """x [n, heads, SIZE] at positions 0..n-1, as complex numbers."""
    half = SIZE // 2
    angle = torch.arange(len(x))[:, None] * THETA ** (-torch.arange(half) / half)
    turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angle), angle)[:, None]
    return torch.cat([turned.real, turned.imag], -1)


def attention(x: Tensor, at: str, t: Mapping[str, Tensor]) -> Tensor:
    """Causal attention over a whole sequence x [n, inputs], before it is added to anything."""

    def project(name: str, heads: int) -> Tensor:
        y = x @ t[f"{at}.self_attn.{name}_proj.weight"].T + t.get(f"{at}.self_attn.{name}_proj.bias", torch.zeros(1))
        scale = t.get(f"{at}.self_attn.{name}_norm.weight")
        return y.view(len(x), heads, SIZE) if scale is None else norm(y.view(len(x), heads, SIZE), scale)

    q, k, v = rotate(project("q", QUERY)), rotate(project("k", KV)), project("v", KV)
    q, k, v = (y.repeat_interleave(QUERY // y.shape[1], 1).transpose(0, 1) for y in (q, k, v))
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return mixed.transpose(0, 1).flatten(1) @ t[f"{at}.self_attn.o_proj.weight"].T


def feed(x: Tensor, at: str, t: Mapping[str, Tensor]) -> Tensor:
    x = norm(x, t[f"{at}.post_attention_layernorm.weight"])
    gate, up = (x @ t[f"{at}.mlp.{name}_proj.weight"].T for name in ("gate", "up"))
    return (F.silu(gate) * up) @ t[f"{at}.mlp.down_proj.weight"].T


def eagle3_reference(
    hidden: Tensor, embedded: Tensor, t: Mapping[str, Tensor], layer: str, norm_before_residual: bool
) -> tuple[Tensor, Tensor]:
    """hidden [n, WIDTH] fused states or outputs, embedded [n, WIDTH] of the tokens after them -> logits, outputs."""
    normed = norm(hidden, t[f"{layer}.hidden_norm.weight"])
    both = torch.cat([norm(embedded, t[f"{layer}.input_layernorm.weight"]), normed], -1)
    x = (normed if norm_before_residual else hidden) + attention(both, layer, t)
    x = x + feed(x, layer, t)
    return norm(x, t["norm.weight"]) @ t["lm_head.weight"].T, x


def eagle1_reference(hidden: Tensor, t: Mapping[str, Tensor], tokens: Tensor, head: Tensor) -> tuple[Tensor, Tensor]:
    x = torch.cat([t["embed_tokens.weight"][tokens], hidden], -1) @ t["fc.weight"].T + t["fc.bias"]
    x = x + attention(x, "layers.0", t)
    x = x + feed(x, "layers.0", t)
    return x @ head.T, x


def medusa_tensors(heads: int = 3, blocks: int = 2, seed: int = 4) -> dict[str, Tensor]:
    shapes: dict[str, tuple[int, ...]] = {f"{h}.{blocks}.weight": (VOCABULARY, WIDTH) for h in range(heads)}
    for name in (f"{h}.{b}.linear" for h in range(heads) for b in range(blocks)):
        shapes |= {f"{name}.weight": (WIDTH, WIDTH), f"{name}.bias": (WIDTH,)}
    return random_tensors(shapes, seed)


def mtp_tensors(seed: int = 6) -> dict[str, Tensor]:
    """One module as in MiMo's files, with biases as in Qwen2."""
    at, q, kv = "model.mtp_layers.0", QUERY * SIZE, KV * SIZE
    shapes = layer_shapes(at, WIDTH) | {f"{at}.input_proj.weight": (WIDTH, 2 * WIDTH)}
    norms = ("token_layernorm", "hidden_layernorm", "final_layernorm", "input_layernorm")
    shapes |= {f"{at}.{name}.weight": (WIDTH,) for name in norms}
    shapes |= {f"{at}.self_attn.{name}_proj.bias": (n,) for name, n in (("q", q), ("k", kv), ("v", kv))}
    return random_tensors(shapes, seed)


def mtp_reference(hidden: Tensor, embedded: Tensor, t: Mapping[str, Tensor], head: Tensor) -> tuple[Tensor, Tensor]:
    at = "model.mtp_layers.0"
    normed = norm(hidden, t[f"{at}.hidden_layernorm.weight"]), norm(embedded, t[f"{at}.token_layernorm.weight"])
    x = torch.cat(normed, -1) @ t[f"{at}.input_proj.weight"].T
    x = x + attention(norm(x, t[f"{at}.input_layernorm.weight"]), at, t)
    x = norm(x + feed(x, at, t), t[f"{at}.final_layernorm.weight"])
    return x @ head.T, x


def qwen_mtp_tensors(seed: int = 6) -> dict[str, Tensor]:
    """One module named as in Qwen3.5's files, its layer like one of Qwen3."""
    at = "mtp.layers.0"
    shapes = layer_shapes(at, WIDTH) | {"mtp.fc.weight": (WIDTH, 2 * WIDTH), f"{at}.input_layernorm.weight": (WIDTH,)}
    shapes |= {f"mtp.{name}.weight": (WIDTH,) for name in ("pre_fc_norm_hidden", "pre_fc_norm_embedding", "norm")}
    shapes |= {f"{at}.self_attn.{name}_norm.weight": (SIZE,) for name in "qk"}
    return random_tensors(shapes, seed)


def qwen_mtp_reference(
    hidden: Tensor, embedded: Tensor, t: Mapping[str, Tensor], head: Tensor
) -> tuple[Tensor, Tensor]:
    at = "mtp.layers.0"
    normed = norm(embedded, t["mtp.pre_fc_norm_embedding.weight"]), norm(hidden, t["mtp.pre_fc_norm_hidden.weight"])
    x = torch.cat(normed, -1) @ t["mtp.fc.weight"].T
    x = x + attention(norm(x, t[f"{at}.input_layernorm.weight"]), at, t)
    x = norm(x + feed(x, at, t), t["mtp.norm.weight"])
    return x @ head.T, x
