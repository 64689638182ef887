"""Tiny Llama models with random weights, as a GGUF file and as a Hugging Face folder, written by other people's code.

The file's parts are plain dictionaries, so that a test can spoil one of them before it is written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from sooner.kernels.formats import Stored

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_SIZE, MLP, CONTEXT = 2, 64, 4, 2, 16, 96, 128
MERGES = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("i", "n"), ("Ã", "©")]
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TOKENS = SPECIALS + sorted(pre_tokenizers.ByteLevel.alphabet()) + [left + right for left, right in MERGES]
CHAT = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def tiny_metadata() -> dict[str, Any]:
    """What a GGUF file of the tiny model says of it."""
    return {
        "llama.block_count": LAYERS,
        "llama.embedding_length": HIDDEN,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.feed_forward_length": MLP,
        "llama.context_length": CONTEXT,
        "llama.rope.freq_base": 10000.0,
        "llama.rope.dimension_count": HEAD_SIZE,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": [3] * len(SPECIALS) + [1] * (len(TOKENS) - len(SPECIALS)),
        "tokenizer.ggml.merges": [f"{left} {right}" for left, right in MERGES],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHAT,
    }


def tiny_tensors(seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """The tiny model's tensors under their GGUF names."""
    random = np.random.default_rng(seed)
    q, kv = HEADS * HEAD_SIZE, KV_HEADS * HEAD_SIZE
    layer = {
        "attn_norm": (HIDDEN,),
        "attn_q": (q, HIDDEN),
        "attn_k": (kv, HIDDEN),
        "attn_v": (kv, HIDDEN),
        "attn_output": (HIDDEN, q),
        "ffn_norm": (HIDDEN,),
        "ffn_gate": (MLP, HIDDEN),
        "ffn_up": (MLP, HIDDEN),
        "ffn_down": (HIDDEN, MLP),
    }
    shapes = {"token_embd": (len(TOKENS), HIDDEN), "output_norm": (HIDDEN,), "output": (len(TOKENS), HIDDEN)}
    shapes |= {f"blk.{i}.{name}": shape for i in range(LAYERS) for name, shape in layer.items()}
    return {f"{name}.weight": random.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def write_gguf(
    path: Path,
    metadata: Mapping[str, Any] | None = None,
    tensors: Mapping[str, NDArray[np.float32] | Stored] | None = None,
    types: Mapping[str, str] | None = None,
    architecture: str = "llama",
) -> Path:
    """Writes with the `gguf` package; `types` maps tensor names to GGML types, the others are F32 or as they are."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in (tiny_metadata() if metadata is None else metadata).items():
        _add(writer, key, value)
    for name, values in (tiny_tensors() if tensors is None else tensors).items():
        if isinstance(values, Stored):
            rows = values.data.view(*values.shape[:-1], -1).numpy()
            writer.add_tensor(name, rows, raw_dtype=gguf.GGMLQuantizationType[values.format.upper()])
        else:
            kind = gguf.GGMLQuantizationType[(types or {}).get(name, "F32")]
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: Any, key: str, value: Any) -> None:
    kinds = {bool: "add_bool", int: "add_uint32", float: "add_float32", str: "add_string", list: "add_array"}
    getattr(writer, kinds[type(value)])(key, value)


def tiny_tokenizer() -> Tokenizer:
    """The same vocabulary as in `tiny_metadata`, built as its own tokenizer.json would say."""
    backend = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(TOKENS)}, merges=MERGES))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIALS])
    return backend


def write_folder(
    folder: Path, *, shard: str = "5GB", seed: int = 0, dtype: torch.dtype | None = None, **changes: Any
) -> Path:
    """Writes config.json, safetensors and tokenizer files with transformers; `changes` go to its LlamaConfig."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    settings = {
        "vocab_size": len(TOKENS),
        "hidden_size": HIDDEN,
        "intermediate_size": MLP,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "max_position_embeddings": CONTEXT,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "tie_word_embeddings": False,
    }
    model = LlamaForCausalLM(LlamaConfig(**(settings | changes))).to(dtype or torch.float32)
    model.save_pretrained(folder, max_shard_size=shard)
    tiny_tokenizer().save(str(folder / "tokenizer.json"))
    names = {"bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>"}, "chat_template": CHAT}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    return folder
