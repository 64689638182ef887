"""GGUF's names of pre-tokenizers: a page cut and merged to the ids that transformers gives it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, trainers

from sooner.models.pre_tokenizers import PRE_TOKENIZERS
from sooner.models.tokenizer import Tokenizer
from sooner.weights.gguf import read_gguf
from tests.models.test_tokenizer import CHATS, DIGITS, PAGE
from tests.support.tiny_models import SPECIALS, tiny_metadata, write_gguf

WORDS = " HelloWorld iPhone's O'Reilly'S WE'LL 3.14/2.71 a/b\n/c\r\n\r\n  ...!?\n\n ÄÖÜäöü ǅ x\u0301y naïveté  "
TEXT = PAGE + DIGITS + WORDS
# transformers has no cuts of its own for these: it reads "default" as GPT-2's, and SmolLM2's without the digits' cut.
OTHERS = {"default", "smollm"}


@cache
def learned() -> tuple[list[str], list[tuple[str, str]]]:
    """Tokens and merges over all borders: only a pre-tokenizer keeps digits from letters and words from marks."""
    learner = Backend(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=900, initial_alphabet=alphabet, show_progress=False)
    learner.train_from_iterator([TEXT[i : i + n] for n in (2, 3, 5) for i in range(len(TEXT))], trainer)
    model = json.loads(learner.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].get), [(left, right) for left, right in model["merges"]]


def write(path: Path, pre: str) -> Path:
    tokens, merges = learned()
    names = [*SPECIALS, *tokens]
    fields: dict[str, Any] = {"tokens": names, "merges": [" ".join(merge) for merge in merges], "pre": pre}
    fields["token_type"] = [3] * len(SPECIALS) + [1] * len(tokens)
    return write_gguf(path, tiny_metadata() | {f"tokenizer.ggml.{key}": value for key, value in fields.items()})


@pytest.mark.parametrize("pre", sorted(PRE_TOKENIZERS.keys() - OTHERS))
def test_ids_and_chats_agree_with_transformers(pre: str, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    path = write(tmp_path / "m.gguf", pre)
    ours = Tokenizer.from_gguf(read_gguf(path).metadata)
    reference = AutoTokenizer.from_pretrained(tmp_path, gguf_file=path.name)
    for text in (TEXT, *TEXT.splitlines(keepends=True), *(TEXT[i : i + 11] for i in range(0, len(TEXT), 3))):
        assert ours.encode(text) == reference.encode(text), text
    for messages in CHATS:
        prompt = ours.chat(messages)
        assert prompt == reference.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        ids = reference.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
        assert ours.encode(prompt, add_special=False) == ids


def test_the_page_tells_the_cuts_apart() -> None:
    """So that the agreement above means something."""
    ids = {}
    for pre in PRE_TOKENIZERS:
        tokens, merges = learned()
        backend = Backend(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
        backend.pre_tokenizer = PRE_TOKENIZERS[pre].build()
        ids[pre] = tuple(backend.encode(TEXT).ids)
    same = {("gpt-2", "olmo"), ("llama-bpe", "llama3"), ("llama-bpe", "llama-v3"), ("llama-bpe", "dbrx")}
    same |= {("qwen2", "deepseek-r1-qwen")}
    assert all(ids[a] == ids[b] for a, b in same)
    assert len(set(ids.values())) == len(PRE_TOKENIZERS) - len(same)
