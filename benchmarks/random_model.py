"""Makes a random model of the shape of Llama-3.2-1B, in bf16 or Q8_0, and measures how it is loaded.

    python -m benchmarks.random_model make bf16 /tmp/random/bf16        a Hugging Face folder, 2.5 GB
    python -m benchmarks.random_model make q8 /tmp/random/q8.gguf       a GGUF file, 1.3 GB
    python -m benchmarks.random_model load /tmp/random/q8.gguf          seconds, bytes and peak memory, as JSON

Speed and memory do not depend on what the numbers are. The vocabulary has made-up tokens, so prompts take many.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from sooner.bench.results import save

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD, MLP, VOCABULARY = 2048, 16, 32, 8, 64, 8192, 128256
ROPE = {
    "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
CONFIG: dict[str, Any] = {
    "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": MLP, "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD, "vocab_size": VOCABULARY,
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "rope_scaling": ROPE,
    "tie_word_embeddings": True, "bos_token_id": 0, "eos_token_id": 1,
}  # fmt: skip
LAYER = {
    "self_attn.q_proj": ("attn_q", (HEADS * HEAD, HIDDEN)),
    "self_attn.k_proj": ("attn_k", (KV_HEADS * HEAD, HIDDEN)),
    "self_attn.v_proj": ("attn_v", (KV_HEADS * HEAD, HIDDEN)),
    "self_attn.o_proj": ("attn_output", (HIDDEN, HEADS * HEAD)),
    "mlp.gate_proj": ("ffn_gate", (MLP, HIDDEN)),
    "mlp.up_proj": ("ffn_up", (MLP, HIDDEN)),
    "mlp.down_proj": ("ffn_down", (HIDDEN, MLP)),
    "input_layernorm": ("attn_norm", (HIDDEN,)),
    "post_attention_layernorm": ("ffn_norm", (HIDDEN,)),
}


def shapes(source: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Tensors by their names at Hugging Face (source 0) or in GGUF files (1)."""
    ends = (("model.embed_tokens", "token_embd"), (VOCABULARY, HIDDEN)), (("model.norm", "output_norm"), (HIDDEN,))
    yield from ((f"{names[source]}.weight", shape) for names, shape in ends)
    for i in range(LAYERS):
        for theirs, (ours, shape) in LAYER.items():
            yield (f"model.layers.{i}.{theirs}.weight", f"blk.{i}.{ours}.weight")[source], shape


def tokens() -> list[str]:
    """The bytes, one merged token, then tokens that nothing merges into."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    return ["<|begin|>", "<|end|>", *letters, "ab", *(f"t{i}" for i in range(VOCABULARY - len(letters) - 3))]


def make_bf16(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    noise = torch.randn(1 << 22, generator=torch.Generator().manual_seed(0)).mul_(0.02).to(torch.bfloat16)
    tensors = {}
    for name, shape in shapes(0):
        count = int(np.prod(shape))
        plain = torch.ones(shape, dtype=torch.bfloat16)
        tensors[name] = plain if len(shape) == 1 else noise.repeat(-(-count // len(noise)))[:count].view(shape)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(CONFIG))
    backend = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens())}, merges=[("a", "b")]))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    backend.save(str(folder / "tokenizer.json"))


def make_q8(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_embedding_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_feed_forward_length(MLP)
    writer.add_context_length(131072)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(500000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list(tokens())
    writer.add_token_merges(["a b"])
    writer.add_token_types([3, 3] + [1] * (VOCABULARY - 2))
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    for name, shape in shapes(1):
        if len(shape) == 1:
            writer.add_tensor(name, np.ones(shape, np.float32))
        else:
            writer.add_tensor(name, _q8_blocks(shape), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _q8_blocks(shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Rows of blocks, each a float16 scale and 32 quants: values of deviation 0.02."""
    blocks = np.random.default_rng(0).integers(0, 256, (4096, 34), np.uint8)
    blocks[:, :2] = np.full((4096, 1), 0.02 / 74, np.float16).view(np.uint8)
    count = shape[0] * shape[1] // 32
    return np.tile(blocks, (-(-count // 4096), 1))[:count].reshape(shape[0], -1)


def load(path: Path, weights: str) -> dict[str, Any]:
    """Seconds from the command to a decoder, without Python's own imports; peak memory of this process."""
    from benchmarks import saving
    from sooner.kernels import make_kernels
    from sooner.models.build import build_decoder
    from sooner.models.checkpoint import open_checkpoint

    before = peak_bytes()
    start = time.perf_counter()
    checkpoint = open_checkpoint(path)
    opened = time.perf_counter()
    kernels = make_kernels("cpu", weights)
    decoder = build_decoder(checkpoint.config, checkpoint.tensors, kernels, "cpu", weights)
    done = time.perf_counter()
    head = saving.envelope("load", {"model": path.name, "weights": weights}, kernels, 0)
    return head | {
        "open_s": round(opened - start, 2),
        "pack_s": round(done - opened, 2),
        "weight_bytes": decoder.nbytes,
        "peak_bytes": peak_bytes() - before,
        "peak_per_weight_byte": round((peak_bytes() - before) / decoder.nbytes, 3),
    }


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("make")
    make.add_argument("format", choices=("bf16", "q8"))
    make.add_argument("path", type=Path)
    one = commands.add_parser("load")
    one.add_argument("path", type=Path)
    one.add_argument("--weights", default="auto")
    one.add_argument("--save", action="store_true", help="keep the result under results/")
    options = parser.parse_args()
    if options.command == "make":
        {"bf16": make_bf16, "q8": make_q8}[options.format](options.path)
    else:
        result = load(options.path, options.weights)
        print(json.dumps(result | {"saved": str(save(result)) if options.save else None}))


if __name__ == "__main__":
    main()
