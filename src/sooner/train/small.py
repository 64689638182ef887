"""A small Llama distilled from the target: some of its layers, trained on its distributions; embedding, norm and output
matrix are the target's and stay as they are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from sooner.errors import InputError
from sooner.models.config import ModelConfig
from sooner.train.card import write_card
from sooner.train.documents import Batch, Document
from sooner.train.eagle import MEASURED_AT, MEASURED_STEPS, SHARPNESS, TOGETHER
from sooner.train.measure import Measured, cross_entropy
from sooner.train.parts import Linear, Mlp, product, rates, rotate
from sooner.train.teach import Teacher, train

OURS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "q",
    "self_attn.k_proj": "k",
    "self_attn.v_proj": "v",
    "self_attn.o_proj": "o",
    "post_attention_layernorm": "mlp_norm",
    "mlp.gate_proj": "gate",
    "mlp.up_proj": "up",
    "mlp.down_proj": "down",
}


class SmallAttention(nn.Module):
    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        self._heads, self._kv_heads = c.heads, c.kv_heads
        self.q_proj = Linear(c.hidden, c.heads * c.head_size)
        self.k_proj = Linear(c.hidden, c.kv_heads * c.head_size)
        self.v_proj = Linear(c.hidden, c.kv_heads * c.head_size)
        self.o_proj = Linear(c.heads * c.head_size, c.hidden)

    def forward(self, x: Tensor, lengths: list[int], cos: Tensor, sin: Tensor) -> Tensor:
        """x [rows, H]: documents one after another, each seen from its beginning."""
        q, k, v = (torch.split(projection(x), lengths) for projection in (self.q_proj, self.k_proj, self.v_proj))
        return torch.as_tensor(self.o_proj(torch.cat([self._mix(*each, cos, sin) for each in zip(q, k, v)])))

    def _mix(self, q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q = rotate(q.view(len(q), self._heads, -1).transpose(0, 1), cos[: len(q)], sin[: len(q)])
        k = rotate(k.view(len(k), self._kv_heads, -1).transpose(0, 1), cos[: len(k)], sin[: len(k)])
        v = v.view(len(v), self._kv_heads, -1).transpose(0, 1)
        each = self._heads // self._kv_heads
        k, v = k.repeat_interleave(each, 0), v.repeat_interleave(each, 0)
        return F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0].transpose(0, 1).flatten(1)


class SmallLayer(nn.Module):
    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(c.hidden, c.norm_eps)
        self.self_attn = SmallAttention(c)
        self.post_attention_layernorm = nn.RMSNorm(c.hidden, c.norm_eps)
        self.mlp = Mlp(c.hidden, c.mlp)

    def forward(self, x: Tensor, lengths: list[int], cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), lengths, cos, sin)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class SmallModel(nn.Module):
    """layers: of the target, by number. Parameters bear the names of a Llama checkpoint's layers."""

    embed: Tensor
    norm: Tensor
    output: Tensor
    cos: Tensor
    sin: Tensor

    def __init__(self, teacher: Teacher, layers: Sequence[int]) -> None:
        super().__init__()
        c = teacher.checkpoint.config
        self.layers = nn.ModuleList(SmallLayer(c) for _ in layers)
        for layer, number in zip(self.layers, layers):
            weights = {f"{theirs}.weight": teacher.tensor(f"layers.{number}.{ours}") for theirs, ours in OURS.items()}
            layer.load_state_dict(weights)
        rope = c.attention[0].rope
        assert rope is not None  # `check` has seen to it
        cos, sin = rope.tables(c.context)
        frozen = {"embed": "embed", "norm": "norm", "output": "head"}
        for name, tensor in {"cos": cos, "sin": sin, **{n: teacher.tensor(t) for n, t in frozen.items()}}.items():
            self.register_buffer(name, tensor, persistent=False)
        self.eps = c.norm_eps

    def logits(self, documents: Sequence[Document]) -> list[Tensor]:
        """Of each document's answer, [answer, V]: row i says what the answer's token i is."""
        tokens = [torch.from_numpy(document.tokens[:-1].astype(np.int64)) for document in documents]
        lengths = [len(each) for each in tokens]
        x = F.embedding(torch.cat(tokens), self.embed)
        for layer in self.layers:
            x = layer(x, lengths, self.cos, self.sin)
        x = F.rms_norm(x, list(self.norm.shape), self.norm, self.eps)
        return [product(rows[-d.answer :], self.output) for rows, d in zip(torch.split(x, lengths), documents)]


class SmallStudent:
    """Implements `loop.Student`."""

    def __init__(self, model: SmallModel, scales: dict[str, float]) -> None:
        self.module, self._scales = model, scales
        self._to_draft = torch.arange(len(model.output))

    def groups(self) -> list[dict[str, Any]]:
        parameters = dict(self.module.named_parameters())
        return [{"params": [parameters[name]], "scale": scale} for name, scale in self._scales.items()]

    def loss(self, documents: Sequence[Document]) -> Tensor:
        batch = Batch(documents, self._to_draft, SHARPNESS)
        logits = torch.cat([rows[:-1] for rows in self.module.logits(batch.documents)])
        labels = batch.labels(-1)
        return (cross_entropy(logits, labels) * labels.known).sum() / labels.known.sum().clamp(1)

    def measure(self, documents: Sequence[Document]) -> Measured:
        """It reads the answer's own tokens, which those of an accepted draft are."""
        result = Measured.over(MEASURED_STEPS)
        for at in range(0, len(documents), TOGETHER):
            batch = Batch(documents[at : at + TOGETHER], self._to_draft, MEASURED_AT)
            answers, steps = self.module.logits(batch.documents), range(MEASURED_STEPS)
            shifted = [
                torch.cat([rows[(torch.arange(1, len(rows)) + step).clamp(max=len(rows) - 1)] for rows in answers])
                for step in steps
            ]
            result.add(batch.documents, shifted, [batch.labels(step) for step in steps])
        return result


def theta(c: ModelConfig) -> float:
    """The base of the target's rotary frequencies, where it has no other settings. Raises InputError."""
    rope, half = c.attention[0].rope, c.head_size // 2
    if (
        rope is not None
        and len(rope.frequencies) == half
        and len(set(c.attention)) == 1
        and c.attention[0].window is None
    ):
        base = rope.frequencies[1] ** -half
        plain = [base ** (-i / half) for i in range(half)]
        if np.allclose(rope.frequencies, plain, rtol=1e-6) and rope.amplitude == 1 and rope.far is None:
            return float(base)
    raise InputError(
        f"train draft needs a target of plain rotary positions, as Llama 2 has; {c.architecture} here differs"
    )


def check(c: ModelConfig, layers: int) -> None:
    theta(c)
    if c.experts is not None or c.activation != "silu" or c.norms != ("attn_norm", "mlp_norm") or c.biases:
        raise InputError(
            f"train draft copies dense layers as Llama has them, {c.architecture} differs; train medusa heads"
        )
    if c.qk_norm != "none" or c.attention_softcap or c.logit_softcap or c.attention_scale or c.embed_scale != 1.0:
        raise InputError(f"train draft copies layers as Llama has them, {c.architecture} differs; train medusa heads")
    if layers > c.layers:
        raise InputError(f"--layers is {layers}, the target has {c.layers}; give fewer")


def train_small(teacher: Teacher, layers: int) -> None:
    """Writes a Hugging Face folder, with the target's tokenizer, into the job's folder."""
    config = teacher.checkpoint.config
    check(config, layers)
    store = teacher.store(teacher.answers(), ())
    chosen = [round(at) for at in np.linspace(0, config.layers - 1, layers)]
    model = SmallModel(teacher, chosen)
    first = store.documents([0])
    student = SmallStudent(model, rates(model, lambda: model.logits(first)))
    trainer = train(student, store, teacher)
    export_small(model, config, teacher)
    write_card(teacher.job, f"Small draft of layers {', '.join(map(str, chosen))}", trainer)


def export_small(model: SmallModel, c: ModelConfig, teacher: Teacher) -> None:
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    tensors |= {"model.embed_tokens.weight": model.embed, "model.norm.weight": model.norm}
    tensors |= {} if c.tied else {"lm_head.weight": model.output}
    kept = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in tensors.items()}
    folder = teacher.job.out
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "hidden_size": c.hidden,
        "num_hidden_layers": len(model.layers),
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv_heads,
        "head_dim": c.head_size,
        "intermediate_size": c.mlp,
        "hidden_act": "silu",
        "rms_norm_eps": c.norm_eps,
        "rope_theta": theta(c),
        "max_position_embeddings": c.context,
        "vocab_size": c.vocabulary,
        "tie_word_embeddings": c.tied,
        "eos_token_id": sorted(c.eos),
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "tokenizer.json").write_text(teacher.checkpoint.tokenizer.as_json())
