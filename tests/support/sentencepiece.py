"""A small vocabulary of SentencePiece's kind, as tokenizer.json files and as GGUF files have it.

Merges are learned from a text by the `tokenizers` library's own trainer; the GGUF form keeps only tokens, scores and
types, as conversions from a SentencePiece model do.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

SPACE = "\u2581"
SPECIALS = ["<unk>", "<s>", "</s>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
CHAT = (
    "{% for message in messages %}{% if message['role'] == 'assistant' %}"
    "{{ ' ' + message['content'] + ' ' + eos_token }}{% else %}"
    "{{ bos_token + '[INST] ' + message['content'] + ' [/INST]' }}{% endif %}{% endfor %}"
)


@dataclass(frozen=True)
class Kind:
    """prefix: a text begins with a space of the tokenizer's own (Llama 2). runs: of spaces and line feeds are tokens
    that are found before merging (Gemma)."""

    prefix: bool
    runs: int = 0


LLAMA2, GEMMA = Kind(prefix=True), Kind(prefix=False, runs=6)


@cache
def learned(text: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Characters and merges, the first merges first."""
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.Metaspace(SPACE)
    learner.train_from_iterator([text], trainers.BpeTrainer(vocab_size=500, show_progress=False))
    model = json.loads(learner.to_str())["model"]
    merges = [tuple(merge) if isinstance(merge, list) else tuple(merge.split(" ")) for merge in model["merges"]]
    alphabet = [token for token in model["vocab"] if len(token) == 1]
    return alphabet, [(left, right) for left, right in merges]


def user_defined(kind: Kind) -> list[str]:
    return [mark * count for mark, least in ((SPACE, 2), ("\n", 1)) for count in range(least, kind.runs + 1)]


def tokens(text: str, kind: Kind) -> list[str]:
    """In the order of a SentencePiece model: control, user-defined, bytes, merged tokens, characters."""
    alphabet, merges = learned(text)
    ordered = [*SPECIALS, *user_defined(kind), *BYTES, *(left + right for left, right in merges), *alphabet]
    return list(dict.fromkeys(ordered))


def own_tokenizer(text: str, kind: Kind) -> Tokenizer:
    """As the model's own tokenizer.json describes it."""
    merges = learned(text)[1]
    runs = user_defined(kind)
    grown = [(run[:-1], run[:1]) for run in reversed(runs) if len(run) > 1]
    backend = Tokenizer(
        models.BPE(
            vocab={token: index for index, token in enumerate(tokens(text, kind))},
            merges=[*((left, right) for left, right in grown), *merges],
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    spaces = [normalizers.Replace(" ", SPACE)]
    backend.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), *spaces] if kind.prefix else spaces)
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if kind.prefix else steps)
    backend.post_processor = processors.TemplateProcessing(single=["<s>", "$A"], special_tokens=[("<s>", 1)])
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIALS])
    backend.add_tokens([AddedToken(run, normalized=False) for run in runs if run[0] == "\n"])
    return backend


def gguf_metadata(text: str, kind: Kind) -> dict[str, Any]:
    names, runs = tokens(text, kind), user_defined(kind)
    types = dict.fromkeys(runs, 4) | dict.fromkeys(BYTES, 6) | {"<unk>": 2, "<s>": 3, "</s>": 3}
    first = len(SPECIALS) + len(runs) + len(BYTES)
    scores = [float(min(0, first - index)) for index in range(len(names))]
    return {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": [token.replace(SPACE, " ") if token in runs else token for token in names],
        "tokenizer.ggml.scores": np.array(scores, np.float32),
        "tokenizer.ggml.token_type": np.array([types.get(token, 1) for token in names], np.int32),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.chat_template": CHAT,
        **({} if kind.prefix else {"tokenizer.ggml.add_space_prefix": False}),
    }
